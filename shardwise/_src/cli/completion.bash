# Completion of `shardwise` for bash: eval "$(shardwise completion bash)"; bash 4 or later
_shardwise() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local command="${COMP_WORDS[1]}" i skip= program=
    COMPREPLY=()
    if (( COMP_CWORD == 1 )) || [[ $COMP_CWORD == 2 && $command == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W @commands@ -- "$current")
        return
    fi
    for (( i = 2; i < COMP_CWORD; i++ )); do  # the first word that is no option, nor its value
        if [[ -n $skip ]]; then skip=; continue; fi
        case "$command ${COMP_WORDS[i]}" in
            @with_value@) skip=1;;
            *" -"*) ;;
            *) program=1; break;;
        esac
    done
    if [[ -n $program ]]; then
        case "$command" in
            @programs@) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return;;
        esac
    else
        case "$command $previous" in
@values@
        esac
    fi
    case "$command" in
@rows@
    esac
}
complete -o filenames -F _shardwise shardwise
