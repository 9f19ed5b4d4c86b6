/* The completion script offers commands, options, keys and the words of keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

/* What bash is offered for a command line of these words, the last one unfinished. */
static void completes(const char *words, const char *expected)
{
    struct str command = {0};
    char offered[4096] = "";
    str_addf(
        &command,
        "bash --norc -c '. %s/tools/snug-completion.bash; COMP_WORDS=(%s %s); "
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _snug 2>/dev/null; echo -n \"${COMPREPLY[*]}\"'",
        SNUG_SOURCE_DIR, SNUG_BINARY, words);
    assert_int_equal(str_status(&command), OK);
    FILE *bash = popen(command.text, "r");
    assert_non_null(bash);
    (void)!fread(offered, 1, sizeof(offered) - 1, bash);
    assert_int_equal(pclose(bash), 0);
    if (strcmp(offered, expected) != 0)
        fail_msg("%s: \"%s\" instead of \"%s\"", words, offered, expected);
    str_release(&command);
}

static void keys_of_the_config_are_offered_after_the_file(void **state)
{
    (void)state;
    completes("train no.yaml lr_sch", "lr_scheduler_type=");
    completes("plan no.yaml adam_b", "adam_beta1= adam_beta2=");
    completes("train lr_sch", ""); /* the file comes first */
}

static void the_words_of_a_key_are_offered_behind_it(void **state)
{
    (void)state;
    completes("train no.yaml logging_strategy = e", "epoch");
    completes("train no.yaml logging_strategy=", "logging_strategy=no logging_strategy=steps "
                                                 "logging_strategy=epoch");
    completes("train no.yaml optim = s", "sgd");
    completes("train no.yaml bf16 = a", "auto");
}

static void commands_and_options_are_offered(void **state)
{
    (void)state;
    completes("tok", "tokenize");
    completes("plan no.yaml --sv", "--svg");
    completes("plan no.yaml --s", "--sweep --svg --snapshot");
    completes("plan no.yaml --gpu rtx409", "rtx4090");
    completes("plan no.yaml --gpu al", "all");
    completes("env --me", "--measure");
    completes("mon", "monitor");
    completes("monitor out --th", "--thresholds");
    completes("monitor out --thresholds a", "aggressive");
    completes("init --preset three", "three-branch");
    completes("init --card rtx409", "rtx4090");
    completes("init --goal q", "qlora");
    completes("train no.yaml --ht", "--html");
    completes("help ke", "keys");
}

int main(void)
{
    if (system("bash -c : 2>/dev/null") != 0) {
        (void)fprintf(stderr, "skipped: there is no bash\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_the_config_are_offered_after_the_file),
        cmocka_unit_test(the_words_of_a_key_are_offered_behind_it),
        cmocka_unit_test(commands_and_options_are_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
