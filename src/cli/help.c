/* help.c: texts of --help, made from the tables. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

void print_overview(void)
{
    (void)printf("snug %s: trains neural networks inside a memory budget.\n\n"
                 "usage: snug COMMAND ...\n\n",
                 snug_version());
    for (size_t i = 0; commands[i]; i++)
        (void)printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    (void)printf(
        "\n"
        "snug COMMAND --help has the whole story of a command; snug --version the version.\n\n"
        "A CONFIG is a YAML file (snug help keys lists its keys) or a model folder in Hugging\n"
        "Face layout. Any key can be changed on the command line: learning_rate=1e-3,\n"
        "model.n_layer=2, or --learning-rate 1e-3.\n\n"
        "two commands to begin with:\n"
        "  snug plan  configs/demo.yaml      what every byte will be for, before anything runs\n"
        "  snug train configs/demo.yaml\n\n"
        "exit status: 0 done, 1 failure, 2 bad usage or config, 3 does not fit the memory given,\n"
        "4 the device ran out of memory all the same (a bug), 5 bad data or checkpoint,\n"
        "129/130/143 interrupted after saving.\n");
}

/* The help of an option beside its name; long texts go on under themselves. */
static void print_option(const struct option *o)
{
    enum { COLUMN = 28, WIDTH = 92 };
    char left[64];
    char letter[8] = "    ";
    if (o->letter)
        (void)snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    bool optional = o->kind == OPTION_OPTIONAL;
    (void)snprintf(left, sizeof(left), "  %s--%s%s%s%s", letter, o->name,
                   optional        ? "[="
                   : o->value_name ? " "
                                   : "",
                   o->value_name ? o->value_name : "", optional ? "]" : "");
    (void)printf("%-*s", COLUMN, left);
    int at = (int)strlen(left) > COLUMN ? (int)strlen(left) : COLUMN;
    for (const char *word = o->help; *word;) {
        size_t n = strcspn(word, " ");
        if (at + 1 + (int)n > WIDTH) {
            (void)printf("\n%-*s", COLUMN, "");
            at = COLUMN;
        }
        (void)printf(" %.*s", (int)n, word);
        at += 1 + (int)n;
        word += n + strspn(word + n, " ");
    }
    (void)printf("\n");
}

void print_command_help(const struct command *c)
{
    (void)printf("usage: snug %s\n\n%s\n\noptions:\n", c->usage, c->text);
    for (size_t i = 0; i < c->n_options; i++)
        print_option(&c->options[i]);
    for (size_t i = 0; i < n_common_options; i++)
        print_option(&common_options[i]);
    if (c->takes_overrides)
        (void)printf("\nkey=value (or --key value) changes a key of the config; model.n_layer=2 "
                     "reaches inside.\n");
    if (c->examples)
        (void)printf("\nexamples:\n%s\n", c->examples);
}
