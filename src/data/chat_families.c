/* chat_families.c: the ways in which models are told who says what. Rows that are recognised first
 * stand first. */
#include <string.h>

#include "data/chat.h"

#define SEPARATOR "\n--\n"

#define CHATML_TURN(role)                                \
    {                                                    \
        "<|im_start|>" role "\n", "", "<|im_end|>", "\n" \
    }
#define CHATML_TURNS                                                         \
    {                                                                        \
        CHATML_TURN("system"), CHATML_TURN("user"), CHATML_TURN("assistant") \
    }

#define CHATML_SYSTEM "'<|im_start|>system\n"

#define LLAMA3_TURN(role)                                                        \
    {                                                                            \
        "<|start_header_id|>" role "<|end_header_id|>\n\n", "", "<|eot_id|>", "" \
    }
#define LLAMA3_TURNS                                                         \
    {                                                                        \
        LLAMA3_TURN("system"), LLAMA3_TURN("user"), LLAMA3_TURN("assistant") \
    }

#define TRIM_ALL (1u << CHAT_SYSTEM | 1u << CHAT_USER | 1u << CHAT_ASSISTANT)
#define NO_TURN        \
    {                  \
        "", "", "", "" \
    }
#define GEMMA_TURN(role)                                       \
    {                                                          \
        "<start_of_turn>" role "\n", "", "<end_of_turn>", "\n" \
    }
#define ZEPHYR_TURN(role)                \
    {                                    \
        "<|" role "|>\n", "", "\2", "\n" \
    }
#define PHI_TURN(role)                        \
    {                                         \
        "<|" role "|>\n", "", "<|end|>", "\n" \
    }

/* How templates say a turn, in the spelling of chat_recognise.c. */
#define LLAMA3_LOOP                                                                    \
    "'<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+" \
    "'<|eot_id|>'"

const struct chat_family chat_families[] = {
    {
        .name = "qwen3",
        .turns = CHATML_TURNS,
        .thinks = 1,
        .structure = "'<|im_start|>'+message.role+'\n<think>\n'+reasoning_content.strip('\n')+"
                     "'\n</think>\n\n'+content.lstrip('\n')" SEPARATOR "last_query_index" SEPARATOR
                     "'<|im_start|>'+message.role+'\n'+content" SEPARATOR "'<|im_end|>\n'",
    },
    {
        .name = "chatml",
        .turns = CHATML_TURNS,
        .structure = "'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'" SEPARATOR
                     "!<|im_sep|>" SEPARATOR "!<think>",
        .default_system = CHATML_SYSTEM,
        .may_have_bos = 1,
    },
    {
        .name = "chatml",
        .turns = CHATML_TURNS,
        .structure = "'<|im_start|>'+message.role+'\n'+content+'<|im_end|>\n'" SEPARATOR
                     "!<|im_sep|>" SEPARATOR "!<think>" SEPARATOR "!content|trim",
        .default_system = CHATML_SYSTEM,
        .may_have_bos = 1,
    },
    {
        .name = "llama3.1",
        .begin = "\1",
        .turns = LLAMA3_TURNS,
        .trims = TRIM_ALL,
        .system_lead = "Cutting Knowledge Date: December 2023\nToday Date: \3\n\n",
        .structure = LLAMA3_LOOP SEPARATOR "Cutting Knowledge Date: December 2023\nToday Date: '"
                                           "+date_string+'\n\n'" SEPARATOR
                                           "system_message+'<|eot_id|>'" SEPARATOR "bos_token",
    },
    {
        .name = "llama3",
        .begin = "\1",
        .turns = LLAMA3_TURNS,
        .trims = TRIM_ALL,
        .structure = LLAMA3_LOOP SEPARATOR "!Date" SEPARATOR "bos_token",
    },
    {
        .name = "llama2",
        .turns = {NO_TURN, {"\1[INST] ", "", " [/INST]", ""}, {"", " ", " \2", ""}},
        .system = CHAT_SYSTEM_FIRST,
        .system_before = "<<SYS>>\n",
        .system_after = "\n<</SYS>>\n\n",
        .trims = TRIM_ALL,
        .joins_first = 1,
        .alternates = 1,
        .structure = "bos_token+'[INST] '+content|trim+' [/INST]'" SEPARATOR
                     "' '+content|trim+' '+eos_token" SEPARATOR
                     "'<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message.content",
    },
    {
        .name = "mistral",
        .begin = "\1",
        .turns = {NO_TURN, {"[INST] ", "", "[/INST]", ""}, {"", " ", "\2", ""}},
        .system = CHAT_SYSTEM_LAST,
        .system_before = "",
        .system_after = "\n\n",
        .trims = 1u << CHAT_ASSISTANT,
        .alternates = 1,
        .structure = "'[INST] '+message.content+'[/INST]'" SEPARATOR
                     "'[INST] '+system_message+'\n\n'+message.content+'[/INST]'" SEPARATOR
                     "ifloop.lastandsystem_messageisdefined" SEPARATOR
                     "' '+message.content|trim+eos_token" SEPARATOR "bos_token",
    },
    {
        .name = "mistral_v2",
        .begin = "\1",
        .turns = {NO_TURN, {" [INST] ", "", " [/INST]", ""}, {"", " ", "\2", ""}},
        .system = CHAT_SYSTEM_FIRST,
        .system_before = "",
        .system_after = "\n\n",
        .alternates = 1,
        .structure = "' [INST] '+message.content+' [/INST]'" SEPARATOR
                     "' [INST] '+system_message+'\n\n'+message.content+' [/INST]'" SEPARATOR
                     "' '+message.content+eos_token" SEPARATOR "bos_token",
    },
    {
        .name = "mistral_v1",
        .begin = "\1",
        .turns = {NO_TURN, {"[INST] ", "", " [/INST]", ""}, {"", "", "\2", ""}},
        .system = CHAT_SYSTEM_NONE,
        .alternates = 1,
        .structure =
            "'[INST] '+message.content+' [/INST]'" SEPARATOR "message.content+eos_token" SEPARATOR
            "!eos_token+' '" SEPARATOR "!system_message" SEPARATOR
            "!+message.content+eos_token" SEPARATOR "bos_token",
    },
    {
        .name = "gemma3",
        .begin = "\1",
        .turns = {NO_TURN, GEMMA_TURN("user"), GEMMA_TURN("model")},
        .system = CHAT_SYSTEM_FIRST,
        .system_before = "",
        .system_after = "\n\n",
        .trims = TRIM_ALL,
        .alternates = 1,
        .structure = "'<start_of_turn>'+role+'\n'+(first_user_prefixifloop.firstelse'')" SEPARATOR
                     "message.content|trim" SEPARATOR "'<end_of_turn>\n'" SEPARATOR "bos_token",
    },
    {
        .name = "gemma",
        .begin = "\1",
        .turns = {NO_TURN, GEMMA_TURN("user"), GEMMA_TURN("model")},
        .system = CHAT_SYSTEM_NONE,
        .trims = TRIM_ALL,
        .alternates = 1,
        .structure = "'<start_of_turn>'+role+'\n'+message.content|trim+'<end_of_turn>\n'" SEPARATOR
                     "bos_token",
    },
    {
        .name = "zephyr",
        .turns = {ZEPHYR_TURN("system"), ZEPHYR_TURN("user"), ZEPHYR_TURN("assistant")},
        .structure = "'<|user|>\n'+message.content+eos_token+'\n'" SEPARATOR
                     "'<|system|>\n'+message.content+eos_token+'\n'" SEPARATOR
                     "'<|assistant|>\n'+message.content+eos_token+'\n'",
    },
    {
        .name = "phi3",
        .turns = {PHI_TURN("system"), PHI_TURN("user"), PHI_TURN("assistant")},
        .tail = "\2",
        .structure = "'<|user|>\n'+message.content+'<|end|>\n'" SEPARATOR
                     "'<|system|>\n'+message.content+'<|end|>\n'" SEPARATOR
                     "'<|assistant|>\n'+message.content+'<|end|>\n'" SEPARATOR
                     "{%else%}{{eos_token}}{%endif%}" SEPARATOR "!bos_token",
    },
    {.name = NULL},
};

const struct chat_family *chat_family_named(const char *name)
{
    for (const struct chat_family *f = chat_families; f->name; f++) {
        if (strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}
