# Completion for bash: what can be completed is asked of the program itself, once per command.
_sluice() {
    local cur prev command text
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    command=${COMP_WORDS[1]}
    if ((COMP_CWORD == 1)); then
        text=$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n '/^  sluice /d; s/^  \([a-z][a-z]*\)  *[^ ].*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$text --help --version" -- "$cur")
        return
    fi
    # What stands on either side of a colon are words of their own to bash.
    if [[ $cur == : || $prev == : ]] && [[ " ${COMP_WORDS[*]:0:COMP_CWORD}" == *" --device cuda"* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "all" -- "${cur#:}")
        return
    fi
    case $prev in
    -m | --model) mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- "$cur"; compgen -d -- "$cur") && return ;;
    --log-level) mapfile -t COMPREPLY < <(compgen -W "error warn info debug" -- "$cur") && return ;;
    --kv-type) mapfile -t COMPREPLY < <(compgen -W "f16 q8_0" -- "$cur") && return ;;
    --cpu-isa) mapfile -t COMPREPLY < <(compgen -W "c avx2 avx512 vnni" -- "$cur") && return ;;
    --experts) mapfile -t COMPREPLY < <(compgen -W "auto resident streamed" -- "$cur") && return ;;
    --io) mapfile -t COMPREPLY < <(compgen -W "auto uring pread buffered uring-buffered pread-buffered" -- "$cur") && return ;;
    --device) mapfile -t COMPREPLY < <(compgen -W "auto cpu cuda cuda:all" -- "$cur") && return ;;
    --split) mapfile -t COMPREPLY < <(compgen -W "auto" -- "$cur") && return ;;
    --look-ahead | --warm-up | --overflow) mapfile -t COMPREPLY < <(compgen -W "on off" -- "$cur") && return ;;
    esac
    if [[ $cur == -* ]]; then
        text=$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null | grep -oE '^ {2,6}(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+')
        mapfile -t COMPREPLY < <(compgen -W "$text" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -o filenames -F _sluice sluice
