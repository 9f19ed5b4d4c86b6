# snug-completion.bash: bash completion for snug. Installed as share/bash-completion/completions/snug.
#
# Keys and their words come from `snug help keys`: lines `key=default  word, word`.

# The words that one key takes.
_snug_words() {
    "${COMP_WORDS[0]}" help keys 2>/dev/null | sed -n "s/^$1=[^ ]*  //p" | tr -d ','
}

# Completes key=value; bash may have cut the line at the `=`. False when it is none.
_snug_setting() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} key prefix=
    case $word in
    =) key=$before word= ;;
    *=*) key=${word%%=*} prefix=$key= word=${word#*=} ;;
    *) [[ $before == = ]] && key=${COMP_WORDS[COMP_CWORD - 2]} || return 1 ;;
    esac
    local words
    words=$(_snug_words "$key")
    mapfile -t COMPREPLY < <(if [[ $words ]]; then compgen -P "$prefix" -W "$words" -- "$word"
        else compgen -P "$prefix" -f -- "$word"; fi)
}

_snug() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local commands='init plan train monitor eval generate chat data tokenize export budget env help'
    local common='--json --no-color --quiet --verbose --help'
    local options
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$commands --version --help" -- "$word")
        return
    fi
    case ${COMP_WORDS[1]} in
    plan) options='--gpu --sweep --html --svg --snapshot --dump --what-if --replan' ;;
    init) options='--preset --model --data --card --goal --output-dir --force' ;;
    train) options='--resume --dry-run --fast-dev-run --profile --profile-steps --html --serve --replan' ;;
    monitor) options='--once --serve --advise --thresholds' ;;
    eval) options='--checkpoint' ;;
    generate) options='--prompt --max-new-tokens --temperature --top-k --top-p --seed --stop --checkpoint --no-echo' ;;
    chat) options='--prompt --system --max-new-tokens --context --temperature --top-k --top-p --seed --stop --checkpoint' ;;
    data) options='--samples' ;;
    tokenize) options='--output' ;;
    export) options='--output --checkpoint --dtype --force' ;;
    env) options='--ops --measure --require-gpu' ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$commands keys gpus" -- "$word"); return ;;
    *) return ;;
    esac
    case $before in
    --checkpoint | -c)
        mapfile -t COMPREPLY < <(compgen -W 'last none' -- "$word"; compgen -d -- "$word")
        return
        ;;
    --gpu) mapfile -t COMPREPLY < <(compgen -W "all $("${COMP_WORDS[0]}" help gpus 2>/dev/null)" -- "$word"); return ;;
    --sweep)
        compopt -o nospace 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -W 'device_memory= host_memory=' -- "$word")
        return
        ;;
    --card) mapfile -t COMPREPLY < <(compgen -W "cpu $("${COMP_WORDS[0]}" help gpus 2>/dev/null)" -- "$word"); return ;;
    --preset)
        mapfile -t COMPREPLY < <(compgen -W "cpu colab three-branch deepspeed accelerate qlora experts per-frame per-frame-small autoencoder $("${COMP_WORDS[0]}" help gpus 2>/dev/null)" -- "$word")
        return
        ;;
    --goal) mapfile -t COMPREPLY < <(compgen -W 'pretrain finetune lora qlora' -- "$word"); return ;;
    --model) mapfile -t COMPREPLY < <(compgen -W 'tiny gpt2-124m gpt2-350m gpt2-1558m llama-1b llama-7b qwen2.5-7b' -- "$word"; compgen -d -- "$word"); return ;;
    --thresholds) mapfile -t COMPREPLY < <(compgen -W 'balanced aggressive conservative' -- "$word"); return ;;
    --dump) mapfile -t COMPREPLY < <(compgen -W 'graph program' -- "$word"); return ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W 'f32 bf16 f16' -- "$word"); return ;;
    --html | --svg | --snapshot | --profile | --output | --output-dir | --data | -o) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    --prompt | --system | --stop | --context | --samples | --max-new-tokens | --temperature | --top-k | --top-p | --seed | --fast-dev-run | --profile-steps | --serve) return ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options $common" -- "$word")
    elif ! _snug_setting; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ((COMP_CWORD == 2)) && return # the config comes first
        local keys
        keys=$("${COMP_WORDS[0]}" help keys 2>/dev/null | sed -n 's/^\([a-z0-9_]*=\).*/\1/p')
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$keys" -- "$word")
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _snug snug
