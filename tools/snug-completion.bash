# snug-completion.bash: bash completion for snug. Installed as share/bash-completion/completions/snug.
_snug() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local commands='plan train eval generate tokenize export env help'
    local common='--json --no-color --quiet --verbose --help'
    local options
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$commands --version --help" -- "$word")
        return
    fi
    case ${COMP_WORDS[1]} in
    plan) options='--svg' ;;
    train) options='--resume --dry-run --fast-dev-run --profile --profile-steps' ;;
    eval) options='--checkpoint' ;;
    generate) options='--prompt --max-new-tokens --temperature --top-k --top-p --seed --checkpoint --no-echo' ;;
    tokenize) options='--output' ;;
    export) options='--output --checkpoint --dtype --force' ;;
    env) options='--ops --require-gpu' ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word"); return ;;
    *) return ;;
    esac
    case $before in
    --checkpoint | -c)
        mapfile -t COMPREPLY < <(compgen -W 'last none' -- "$word"; compgen -d -- "$word")
        return
        ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W 'f32 bf16 f16' -- "$word"); return ;;
    --svg | --profile | --output | -o) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    --prompt | --max-new-tokens | --temperature | --top-k | --top-p | --seed | --fast-dev-run | --profile-steps) return ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options $common" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _snug snug
