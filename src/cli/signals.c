/* signals.c: how signals end a command.
 *
 * A command that would lose work (train, once it trains) is asked to finish: its stop flag is set,
 * and it saves and returns. Every other command has nothing to save: it ends at once, whatever it
 * waits for, with what it was writing removed, and with the exit code a shell expects.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/temporary.h"
#include "cli/cli.h"

static volatile sig_atomic_t stop_signal; /* number of the one that asked to stop; 0: none */
static volatile sig_atomic_t finishes;    /* the command looks at stop_signal */
static volatile sig_atomic_t owes_json;   /* --json was given and no object is out yet */

volatile sig_atomic_t *signals_stop(void)
{
    return &stop_signal;
}

void signals_finish(bool finish)
{
    finishes = finish;
}

void signals_owe_json(bool owed)
{
    owes_json = owed;
}

static void say(int fd, const char *text)
{
    (void)!write(fd, text, strlen(text));
}

/* What a signal that ends a command at once has to say. */
static const struct ending {
    int number;
    enum snug_status status;
    const char *warning, *json;
} endings[] = {
    {SIGINT, SNUG_ERR_INTERRUPTED, "warning: interrupted\n",
     "{\"error\": {\"status\": \"ERR_INTERRUPTED\", \"message\": \"interrupted\", "
     "\"exit_code\": 130}}\n"},
    {SIGTERM, SNUG_ERR_TERMINATED, "warning: terminated\n",
     "{\"error\": {\"status\": \"ERR_TERMINATED\", \"message\": \"terminated\", "
     "\"exit_code\": 143}}\n"},
    {SIGHUP, SNUG_ERR_HANGUP, "warning: the terminal hung up\n",
     "{\"error\": {\"status\": \"ERR_HANGUP\", \"message\": \"the terminal hung up\", "
     "\"exit_code\": 129}}\n"},
};

/* Only what a handler may do. */
static _Noreturn void end_at_once(int number)
{
    const struct ending *e = endings;
    while (e + 1 < endings + ARRAY_LEN(endings) && e->number != number)
        e++;
    temporary_remove_all();
    say(STDERR_FILENO, e->warning);
    if (owes_json)
        say(STDOUT_FILENO, e->json);
    _exit(snug_exit_code(e->status));
}

static void on_signal(int number)
{
    bool asked_before = stop_signal != 0;
    if (number == SIGUSR1 || finishes)
        stop_signal = number;
    if (number == SIGUSR1)
        return;
    /* A second Ctrl-C does not wait for the step and the checkpoint. */
    if (!finishes || (asked_before && number == SIGINT))
        end_at_once(number);
}

void catch_signals(void)
{
    struct sigaction catch = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigemptyset(&catch.sa_mask);
    (void)sigaction(SIGINT, &catch, NULL);
    (void)sigaction(SIGTERM, &catch, NULL);
    (void)sigaction(SIGUSR1, &catch, NULL);
    /* Under nohup a closed terminal is not to be noticed. */
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, &catch, NULL);
    /* A write past the file size limit or into a closed pipe is an error to report, not an end. */
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
}
