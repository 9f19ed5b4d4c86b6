#!/usr/bin/env python3
"""Makes tests/golden/chat/: what `transformers` renders and encodes conversations to, with a template
of each family that Snug knows, and which tokens are the assistant's.

    pip install transformers
    tools/make_chat_golden.py

The templates are written here, as short as they can be and still say what those of the models do;
`generation` marks what an assistant writes. The tokenizers are those of tests/golden/tokenizer, and
one with the special tokens of all families, made here. Running it again gives the same files.
"""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZERS = ROOT / "tests" / "golden" / "tokenizer"
OUT = ROOT / "tests" / "golden" / "chat"

GEN, END = "{% generation %}", "{% endgeneration %}"
ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('roles take turns') }}{% endif %}")
SPLIT_SYSTEM = ("{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
                "{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}")


def chatml(first=""):
    """Outputs apart, so that the assistant's can be marked."""
    return ("{% for message in messages %}" + first + "{{ '<|im_start|>' + message['role'] + '\\n' }}"
            "{% if message['role'] == 'assistant' %}" + GEN + "{{ message['content'] + '<|im_end|>' }}" + END +
            "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def chatml_plain(first=""):
    return ("{% for message in messages %}" + first +
            "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


DEFAULT = ("{% if loop.first and messages[0]['role'] != 'system' %}"
           "{{ '<|im_start|>system\\nYou are a careful helper.<|im_end|>\\n' }}{% endif %}")

QWEN3 = """{%- set ns = namespace(searching=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if ns.searching and message.role == "user" %}
        {%- set ns.searching = false %}
        {%- set ns.last_query_index = (messages|length - 1) - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role != "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- else %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            OPEN{{- '<|im_start|>' + message.role + '\\nGEN<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            OPEN{{- '<|im_start|>' + message.role + '\\nGEN' + content }}
        {%- endif %}
        {{- '<|im_end|>ENDGEN\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3_PLAIN = QWEN3.replace("ENDGEN", "").replace("OPEN", "").replace("GEN", "")
# The same with what the assistant writes marked: one block cannot span the branches.
QWEN3_MARKED = (QWEN3.replace("            OPEN{{- '<|im_start|>' + message.role + '\\nGEN",
                              "            {{- '<|im_start|>' + message.role + '\\n' }}{%- generation -%}{{- '")
                .replace("content.lstrip('\\n') }}", "content.lstrip('\\n') + '<|im_end|>' }}{%- endgeneration -%}")
                .replace("{{- '' + content }}", "{{- content + '<|im_end|>' }}{%- endgeneration -%}")
                .replace("{{- '<|im_end|>ENDGEN\\n' }}", "{{- '\\n' }}"))

HEADER = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"


def llama3_loop(messages):
    plain = ("{% for message in " + messages + " %}{{ " + HEADER +
             " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}")
    marked = ("{% for message in " + messages + " %}{{ " + HEADER + " }}{% if message['role'] == 'assistant' %}" + GEN +
              "{{ message['content'] | trim + '<|eot_id|>' }}" + END +
              "{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}")
    prompt = ("{% if add_generation_prompt %}"
              "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
    return plain + prompt, marked + prompt


LLAMA31_FRONT = ("{{- bos_token }}\n{%- set date_string = \"26 Jul 2024\" %}\n"
                 "{%- if messages[0]['role'] == 'system' %}\n"
                 "    {%- set system_message = messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n"
                 "{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
                 "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"
                 "{{- \"Cutting Knowledge Date: December 2023\\n\" }}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n"
                 "{{- system_message }}\n{{- \"<|eot_id|>\" }}")

LLAMA2 = (SPLIT_SYSTEM.replace("{% else %}", "{% else %}{% set system_message = false %}") +
          "{% for message in loop_messages %}" + ALTERNATE +
          "{% if loop.index0 == 0 and system_message != false %}"
          "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
          "{% else %}{% set content = message['content'] %}{% endif %}"
          "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
          "{% else %}G{{ ' '  + content.strip() + ' ' + eos_token }}E{% endif %}{% endfor %}")


def mistral(user, answer, system=None, where="loop.first"):
    told = ("{% if " + where + " and system_message is defined %}{{ " + user.replace("C", system) + " }}{% else %}"
            if system else "")
    return ((SPLIT_SYSTEM if system else "") + "{{ bos_token }}{% for message in " +
            ("loop_messages" if system else "messages") + " %}" + ALTERNATE + "{% if message['role'] == 'user' %}" + told +
            "{{ " + user.replace("C", "message['content']") + " }}" + ("{% endif %}" if system else "") +
            "{% elif message['role'] == 'assistant' %}G{{ " + answer + " }}E{% endif %}{% endfor %}")


GEMMA_ROLE = "{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
         "{% for message in messages %}" + ALTERNATE + GEMMA_ROLE + "OUT{% endfor %}"
         "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}")
GEMMA_OUT = "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}"
GEMMA_MARKED = ("{{ '<start_of_turn>' + role + '\\n' }}{% if role == 'model' %}" + GEN +
                "{{ message['content'] | trim + '<end_of_turn>' }}" + END +
                "{% else %}{{ message['content'] | trim + '<end_of_turn>' }}{% endif %}{{ '\\n' }}")
GEMMA3 = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}"
          "{% set loop_messages = messages[1:] %}{% else %}{% set first_user_prefix = '' %}"
          "{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}" + ALTERNATE + GEMMA_ROLE +
          "{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}"
          "{% if role == 'model' %}" + GEN + "{{ message['content'] | trim }}{{ '<end_of_turn>' }}" + END +
          "{% else %}{{ message['content'] | trim }}{{ '<end_of_turn>' }}{% endif %}{{ '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}")
GEMMA3_PLAIN = (GEMMA3.replace("{% if role == 'model' %}" + GEN + "{{ message['content'] | trim }}{{ '<end_of_turn>' }}" +
                               END + "{% else %}{{ message['content'] | trim }}{{ '<end_of_turn>' }}{% endif %}{{ '\\n' }}",
                               "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}"))


def tagged(end, tail=""):
    """Zephyr's lines and Phi-3's: a role in marks, the message, an end."""
    out = ("{% for message in messages %}\nLINES{% endfor %}\n"
           "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}" + tail + "{% endif %}")
    plain, marked = "", ""
    for i, role in enumerate(["system", "user", "assistant"]):
        test = "{% " + ("if" if i == 0 else "elif") + " message['role'] == '" + role + "' %}\n"
        plain += test + "{{ '<|" + role + "|>\\n' + message['content'] + " + end + " }}\n"
        marked += test + ("{{ '<|" + role + "|>\\n' }}" + (GEN if i == 2 else "") + "{{ message['content'] + " + end +
                          " }}" + (END if i == 2 else "") + "{{ '\\n' }}")
    return out.replace("LINES", plain + "{% endif %}\n"), out.replace("LINES", marked + "{% endif %}")


ZEPHYR, ZEPHYR_MARKED = tagged("eos_token")
PHI3, PHI3_MARKED = tagged("'<|end|>'", "{% else %}{{ eos_token }}")
PHI3 = PHI3.replace("'<|end|>' }}\n", "'<|end|>\\n' }}")


def both(template):
    return template.replace("G{{", "{{").replace("}}E", "}}"), template.replace("G{{", GEN + "{{").replace("}}E", "}}" + END)


# name, tokenizer, BOS, EOS, the template as models have it, the same with the assistant marked
FAMILIES = [
    ("chatml", "qwen2", None, "<|im_end|>", chatml_plain(), chatml()),
    ("chatml", "qwen2", None, "<|im_end|>", chatml_plain(DEFAULT), chatml(DEFAULT)),
    ("chatml", "special", "<s>", "<|im_end|>", "{{ bos_token }}" + chatml_plain(), "{{ bos_token }}" + chatml()),
    ("qwen3", "qwen2", None, "<|im_end|>", QWEN3_PLAIN, QWEN3_MARKED),
    ("llama3", "special", "<s>", "<|eot_id|>", *["{{ bos_token }}" + t for t in llama3_loop("messages")]),
    ("llama3.1", "special", "<s>", "<|eot_id|>", *[LLAMA31_FRONT + t for t in llama3_loop("messages")]),
    ("llama2", "llama2", "<s>", "</s>", *both(LLAMA2)),
    ("mistral_v1", "mistral", "<s>", "</s>",
     *both(mistral("'[INST] ' + C + ' [/INST]'", "message['content'] + eos_token"))),
    ("mistral_v2", "mistral", "<s>", "</s>",
     *both(mistral("' [INST] ' + C + ' [/INST]'", "' ' + message['content'] + eos_token",
                   "system_message + '\\n\\n' + message['content']"))),
    ("mistral", "mistral", "<s>", "</s>",
     *both(mistral("'[INST] ' + C + '[/INST]'", "' ' + message['content']|trim + eos_token",
                   "system_message + '\\n\\n' + message['content']", "loop.last"))),
    ("gemma", "gemma", "<bos>", "<eos>", GEMMA.replace("OUT", GEMMA_OUT), GEMMA.replace("OUT", GEMMA_MARKED)),
    ("gemma", "special", "<s>", "<eos>", GEMMA.replace("OUT", GEMMA_OUT), GEMMA.replace("OUT", GEMMA_MARKED)),
    ("gemma3", "special", "<s>", "<eos>", GEMMA3_PLAIN, GEMMA3),
    ("zephyr", "llama2", "<s>", "</s>", ZEPHYR, ZEPHYR_MARKED),
    ("phi3", "special", "<s>", "<eos>", PHI3, PHI3_MARKED),
]


def says(*texts, system=None):
    front = [{"role": "system", "content": system}] if system is not None else []
    return front + [{"role": ["user", "assistant"][i % 2], "content": t} for i, t in enumerate(texts)]


CONVERSATIONS = [
    says("Hello there", "Hi! What's up?"),
    says("What is 2 + 40?", "42", "And 3 more?", "That's 45.", "Thanks  ", " You're welcome. "),
    says("Привет, мир", "été naïve 日本 😀", system="Answer briefly.\n"),
    says("\n\nline\n", "\n\nleading lines\n\n", system="  spaces  "),
    says("one", "", "two", "three"),
    says("Think", "<think>\nfirst this\n</think>\n\nso that", "again", "<think>\nthen that\n</think>\n\nanswer"),
    says("a cafe\u0301 \u00a0", "cafe\u0301s are\tfine", system="<|im_end|> in </s> text"),
    says("only a question"),
    says("a question", system="with a system message"),
]


def specials():
    t = Tokenizer.from_file(str(TOKENIZERS / "llama3.json"))
    data = json.loads(t.to_str())
    data["added_tokens"], data["post_processor"] = [], None
    t = Tokenizer.from_str(json.dumps(data))
    t.add_special_tokens(["<s>", "<eos>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
                          "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"])
    t.add_special_tokens([AddedToken(f"<|{name}|>", rstrip=True, normalized=False, special=True)
                          for name in ["system", "user", "assistant", "end"]])
    return t


def encode(tokenizer, template, marked, messages, is_open):
    from jinja2.exceptions import TemplateError
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False,
                                             add_generation_prompt=is_open)
        out = tokenizer.apply_chat_template(messages, chat_template=marked, return_dict=True,
                                            return_assistant_tokens_mask=True, add_generation_prompt=is_open)
    except TemplateError:
        return None
    assert text == tokenizer.apply_chat_template(messages, chat_template=marked, tokenize=False,
                                                 add_generation_prompt=is_open), (template, marked)
    return {"ids": out["input_ids"], "mask": "".join(map(str, out["assistant_masks"]))}


def main():
    OUT.mkdir(exist_ok=True)
    specials().save(str(OUT / "special.json"), pretty=False)
    families = []
    for name, tokenizer, bos, eos, template, marked in FAMILIES:
        folder = OUT if tokenizer == "special" else TOKENIZERS
        t = PreTrainedTokenizerFast(tokenizer_file=str(folder / f"{tokenizer}.json"), bos_token=bos, eos_token=eos)
        cases = []
        for i, messages in enumerate(CONVERSATIONS):
            for is_open in [False, True]:
                if is_open != (messages[-1]["role"] == "user"):
                    continue
                cases.append({"conversation": i, "open": is_open, **(encode(t, template, marked, messages, is_open) or {})})
        families.append({"name": name, "tokenizer": f"tests/golden/{folder.name}/{tokenizer}.json", "bos": bos, "eos": eos,
                         "templates": [template, marked], "cases": cases})
    lines = ",\n".join(json.dumps(f, ensure_ascii=False, separators=(",", ":")) for f in families)
    chats = json.dumps(CONVERSATIONS, ensure_ascii=False)
    (OUT / "cases.json").write_text('{"conversations":' + chats + ',\n"families":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
