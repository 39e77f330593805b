# Completion for bash. What can be completed is asked of the program, which prints its table of options.
_sluice() {
    local cur prev program command name letter what words about text=""
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    program=${COMP_WORDS[0]}
    command=${COMP_WORDS[1]}
    if ((COMP_CWORD == 1)); then
        text=$("$program" --list-commands 2>/dev/null | cut -f 1)
        mapfile -t COMPREPLY < <(compgen -W "$text --help --version" -- "$cur")
        return
    fi
    # What stands on either side of a colon, or of an equals sign, are words of their own to bash.
    if [[ $cur == : || $prev == : ]] && [[ " ${COMP_WORDS[*]:0:COMP_CWORD}" == *" --device "* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "all" -- "${cur#:}")
        return
    fi
    if [[ $cur == = ]]; then
        cur=""
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    while IFS=$'\t' read -r name letter what words about; do
        text+=" $name"
        if [[ $prev == "$name" || ($letter != - && $prev == "$letter") ]]; then
            [[ $words == - ]] && words=""
            case $what in
            none) continue ;;
            model) mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- "$cur"; compgen -d -- "$cur") ;;
            file) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"; compgen -f -- "$cur") ;;
            folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
            word) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
            esac
            return
        fi
    done < <("$program" "$command" --list-options 2>/dev/null)
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$text" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- "$cur"; compgen -d -- "$cur")
    fi
}
complete -o filenames -F _sluice sluice
