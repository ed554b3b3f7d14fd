#compdef shardwise
# Completion of `shardwise` for zsh: eval "$(shardwise completion zsh)", after compinit
_shardwise() {
    local -a commands
    commands=(@commands@)
    if (( CURRENT == 2 )) || [[ $CURRENT == 3 && $words[2] == help ]]; then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
@rows@
    esac
}
if [[ ${funcstack[1]} == _shardwise ]]; then
    _shardwise "$@"
else
    compdef _shardwise shardwise
fi
