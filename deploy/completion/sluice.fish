# Completion for fish. What can be completed is asked of the program, which prints its table of options.

function __sluice_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l previous $before[-1]
    set -l typed ""
    if test (count $before) -eq 1
        $before[1] --list-commands 2>/dev/null
        printf '%s\n' --help\t'show the commands' --version\t'print the version'
        return
    end
    if string match -qr -- '^--[a-z-]+=' $current # --option=value
        set previous (string replace -r -- '=.*' '' $current)
        set typed $previous=
    end
    set -l options ($before[1] $before[2] --list-options 2>/dev/null)
    for line in $options
        set -l field (string split \t -- $line)
        if test "$field[3]" = none; or not contains -- $previous $field[1] $field[2]
            continue
        end
        set -l value (string replace -- "$typed" '' $current)
        switch $field[3]
            case model
                printf '%s\n' $typed(__fish_complete_suffix $value .gguf)
            case file
                test "$field[4]" = -; or printf '%s\n' $typed(string split ' ' -- $field[4])
                printf '%s\n' $typed(__fish_complete_path $value)
            case folder
                printf '%s\n' $typed(__fish_complete_directories $value)
            case word
                printf '%s\n' $typed(string split ' ' -- $field[4])
        end
        return
    end
    if string match -q -- '-*' $current
        for line in $options
            set -l field (string split \t -- $line)
            printf '%s\t%s\n' $field[1] $field[5]
        end
    else
        __fish_complete_suffix $current .gguf
    end
end

complete -c sluice -f -a '(__sluice_complete)'
