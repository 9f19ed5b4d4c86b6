#include "search/budget.h"

#include <stdio.h>
#include <string.h>

/* What a memory has for this process when `taken` of it is spoken for. */
static int64_t left_of(const struct device_room *r, int64_t taken)
{
    return r->free_bytes == INT64_MAX ? INT64_MAX : MAX(room_available(r) - taken, (int64_t)0);
}

void budget_make(struct budget *b, const struct surroundings *around, bool is_shared,
                 const struct limits *limits, const int64_t needs[TIER_COUNT])
{
    *b = (struct budget){
        .is_shared = is_shared, .room = around->room, .host = around->host, .disk = around->disk};
    memcpy(b->needs, needs, sizeof(b->needs));
    b->had[TIER_DEVICE] = left_of(&b->room, b->is_shared ? needs[TIER_HOST] : 0);
    b->had[TIER_HOST] = left_of(&b->host, b->is_shared ? needs[TIER_DEVICE] : 0);
    b->had[TIER_DISK] = b->disk.free_bytes;
    for (int t = 0; t < TIER_COUNT; t++) {
        b->given[t] = limits->n_bytes[t] != LIMIT_OPEN;
        b->n_bytes[t] = b->given[t] ? limits->n_bytes[t] : b->had[t];
    }
    /* A budget is a plan, perhaps for another machine: only what was left open goes by this one. */
    if (b->is_shared && b->given[TIER_DEVICE] && !b->given[TIER_HOST])
        b->n_bytes[TIER_HOST] = left_of(&b->host, 0);
}

static enum tier first_above(const int64_t needs[TIER_COUNT], const int64_t most[TIER_COUNT])
{
    for (int t = 0; t < TIER_COUNT; t++)
        if (needs[t] > most[t])
            return (enum tier)t;
    return TIER_COUNT;
}

enum tier budget_over(const struct budget *b)
{
    return first_above(b->needs, b->n_bytes);
}

enum tier budget_short(const struct budget *b)
{
    return first_above(b->needs, b->had);
}

bool budget_holds_beside(const struct budget *b)
{
    bool holds = true;
    for (int t = TIER_HOST; t < TIER_COUNT; t++)
        holds &= b->needs[t] <= b->n_bytes[t];
    return holds;
}

static const struct device_room *room_of(const struct budget *b, enum tier t)
{
    return t == TIER_DEVICE ? &b->room : t == TIER_HOST ? &b->host : &b->disk;
}

void budget_add_text(const struct budget *b, enum tier t, bool is_given, struct str *out)
{
    char bytes[BYTES_TEXT], setting[BYTES_TEXT];
    if (is_given) {
        str_addf(out, "the budget is %s (%lld bytes)", format_bytes(bytes, b->n_bytes[t]),
                 (long long)b->n_bytes[t]);
        return;
    }
    enum tier other = t == TIER_DEVICE ? TIER_HOST : TIER_DEVICE;
    str_add(out, "but ");
    room_add_text(room_of(b, t), out);
    if (b->is_shared && t != TIER_DISK)
        str_addf(out, ", and %s of that go to %s", format_bytes(bytes, b->needs[other]),
                 t == TIER_DEVICE ? "what the process holds beside the arena" : "the arena");
    str_addf(out, " (%s_memory: %s is what can be had)", tier_name(t),
             room_setting(b->had[t], setting));
}

int64_t budget_enough(enum tier t, int64_t needs)
{
    const int64_t unit = 1 << 20;
    return align_up(needs, unit) + (t == TIER_HOST ? unit : 0);
}

const char *budget_fix(const struct budget *b, enum tier t, bool is_given, char out[320])
{
    const struct device_room *room = room_of(b, t);
    const char *whose = room->whose;
    const int64_t enough = budget_enough(t, b->needs[t]);
    char setting[BYTES_TEXT];
    if (is_given && enough <= b->had[t])
        (void)snprintf(out, 320, "raise %s_memory to %s", tier_name(t),
                       room_setting(enough, setting));
    else if (is_given && t == TIER_DEVICE && !b->is_shared && b->given[TIER_HOST])
        (void)snprintf(out, 320, "raise device_memory and host_memory");
    else if (is_given && t != TIER_DEVICE)
        (void)snprintf(out, 320, "raise %s_memory", tier_name(t));
    else if (t == TIER_DISK)
        (void)snprintf(out, 320, "free some of it, or name an offload_folder with more");
    else if (strncmp(whose, "cgroup", 6) == 0 || strncmp(whose, "ulimit", 6) == 0)
        (void)snprintf(out, 320, "raise the limit of %s", whose);
    else if (b->needs[t] > room->total_bytes || room_others(room) == 0)
        (void)snprintf(out, 320, "take a %s that has more",
                       t == TIER_DEVICE && !b->is_shared ? "GPU" : "machine");
    else
        (void)snprintf(out, 320, "end what holds the rest");
    return out;
}
