/* speech.c: prompts in and texts out, as generating and chatting share them. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"

enum { MOST_PROMPT_BYTES = 1 << 26 };

/* The line break at its end is the shell's. */
enum snug_status read_prompt(struct cli *cli, const char **out)
{
    char *text;
    size_t n_bytes;
    *out = cli->args.prompt;
    if (!*out || strcmp(*out, "-") != 0)
        return SNUG_OK;
    if (file_read_stream("/dev/stdin", MOST_PROMPT_BYTES, &text, &n_bytes) != OK)
        return SNUG_ERR_IO;
    n_bytes -= n_bytes > 0 && text[n_bytes - 1] == '\n';
    *out = pool_strndup(&cli->args.pool, text, n_bytes);
    mem_free(text);
    return *out ? SNUG_OK : memory_error();
}

enum snug_status print_piece(void *user, const char *text, size_t n_bytes)
{
    (void)user;
    if (fwrite(text, 1, n_bytes, stdout) == n_bytes && fflush(stdout) == 0)
        return SNUG_OK;
    (void)FAIL(ERR_IO, "stdout could not be written");
    return SNUG_ERR_IO;
}

void show_generation(const struct snug_generation *g)
{
    char bytes[BYTES_TEXT], planned[BYTES_TEXT];
    bool is_all =
        g->arena_bytes == g->arena_predicted; /* a short prompt leaves some of it unused */
    double rate = g->decode_s > 0 ? (double)g->n_new_tokens / g->decode_s : 0;
    log_info("%lld prompt tokens in %.0f ms, %lld new tokens at %.1f tok/s%s; arena %s (%s%s); "
             "weights %s",
             (long long)g->n_prompt_tokens, 1e3 * g->prefill_s, (long long)g->n_new_tokens, rate,
             g->ended ? ", end of text" : "", format_bytes(bytes, g->arena_bytes),
             is_all ? "as predicted" : "of ",
             is_all ? "" : format_bytes(planned, g->arena_predicted),
             g->weights ? g->weights : "untrained, from the seed");
}
