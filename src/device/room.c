#include "device/room.h"

#include <stdio.h>

#include "base/host_memory.h"

enum { LISTED = 4 };

/* What a driver keeps for itself is nobody's: a remainder below this is not spoken of. */
#define UNSPOKEN ((int64_t)1 << 30)

void room_sort(struct device_room *r)
{
    for (int i = 1; i < r->n_holders; i++) {
        struct device_holder x = r->holders[i];
        int k = i;
        for (; k > 0 && r->holders[k - 1].n_bytes < x.n_bytes; k--)
            r->holders[k] = r->holders[k - 1];
        r->holders[k] = x;
    }
}

/* Pages that are mapped take a 512th for the tables that map them. */
enum { PAGES_PER_TABLE = 512 };

void room_of_host(struct device_room *out)
{
    struct host_memory m;
    host_memory_read("", &m);
    *out = (struct device_room){
        .is_host = true,
        .total_bytes = m.total_bytes,
        .free_bytes = m.free_bytes - m.free_bytes / PAGES_PER_TABLE,
        .own_bytes = m.free_bytes == INT64_MAX ? 0 : process_anonymous(),
    };
    (void)snprintf(out->whose, sizeof(out->whose), "%s", m.whose);
}

int64_t room_available(const struct device_room *r)
{
    return r->free_bytes + r->own_bytes;
}

int64_t room_others(const struct device_room *r)
{
    int64_t n_bytes = r->total_bytes - r->free_bytes - r->own_bytes;
    return n_bytes > 0 ? n_bytes : 0;
}

static void add_unseen(const struct device_room *r, int64_t n_bytes, struct str *out)
{
    char text[BYTES_TEXT];
    if (n_bytes >= UNSPOKEN)
        str_addf(out, "%sused by others: %s%s", r->n_holders && r->sees_processes ? ", " : "",
                 format_bytes(text, n_bytes),
                 r->is_host ? "" : " (processes not visible from here)");
}

void room_add_holders(const struct device_room *r, struct str *out)
{
    int64_t rest = room_others(r), unlisted = 0;
    int n_unlisted = 0;
    char text[BYTES_TEXT];
    if (!r->sees_processes) {
        add_unseen(r, rest, out);
        return;
    }
    for (int i = 0; i < r->n_holders; i++) {
        const struct device_holder *h = &r->holders[i];
        bool named = h->name[0] != '\0';
        rest -= h->n_bytes;
        if (i >= LISTED) {
            unlisted += h->n_bytes;
            n_unlisted++;
            continue;
        }
        str_addf(out, "%sprocess %lld%s%s%s holds %s", i ? ", " : "", (long long)h->pid,
                 named ? " (" : "", h->name, named ? ")" : "", format_bytes(text, h->n_bytes));
    }
    if (n_unlisted > 0)
        str_addf(out, ", %d more %s", n_unlisted, format_bytes(text, unlisted));
    add_unseen(r, rest, out);
}

void room_add_text(const struct device_room *r, struct str *out)
{
    char available[BYTES_TEXT], total[BYTES_TEXT];
    struct str holders = {0};
    room_add_holders(r, &holders);
    str_addf(out, "only %s (%lld bytes) of %s's %s are free%s%s%s",
             format_bytes(available, room_available(r)), (long long)room_available(r), r->whose,
             format_bytes(total, r->total_bytes),
             !holders.n   ? ""
             : r->is_host ? " ("
                          : ": ",
             str_text(&holders), holders.n && r->is_host ? ")" : "");
    str_release(&holders);
}

/* The unit of settings: a small part of what they say. */
static bool is_in_mebibytes(int64_t n_bytes)
{
    return n_bytes >= (int64_t)64 << 20;
}

int64_t room_rounded(int64_t n_bytes)
{
    const int64_t unit = is_in_mebibytes(n_bytes) ? 1 << 20 : 1 << 10;
    return MAX(n_bytes, (int64_t)0) / unit * unit;
}

const char *room_setting(int64_t n_bytes, char out[BYTES_TEXT])
{
    long long kibibytes = room_rounded(n_bytes) >> 10;
    if (is_in_mebibytes(n_bytes))
        (void)snprintf(out, BYTES_TEXT, "%lldMiB", kibibytes >> 10);
    else
        (void)snprintf(out, BYTES_TEXT, "%lldKiB", kibibytes);
    return out;
}

enum status room_refuse_host(const char *what, int64_t n_bytes, const char *reason)
{
    char need[BYTES_TEXT], most[BYTES_TEXT];
    struct device_room room;
    struct str text = {0};
    room_of_host(&room);
    room_add_text(&room, &text);
    enum status status = FAIL(
        ERR_FIT,
        "does not fit: %s needs %s (%lld bytes) of host memory, which the system refused (%s); "
        "%s. End what holds the rest or raise that limit, or plan for host_memory: %s",
        what, format_bytes(need, n_bytes), (long long)n_bytes, reason, str_text(&text),
        room_setting(room_available(&room), most));
    str_release(&text);
    return status;
}

enum status room_refuse_pinned(const char *what, int64_t n_bytes, const char *reason)
{
    char need[BYTES_TEXT], may_lock[BYTES_TEXT], most[BYTES_TEXT];
    int64_t limit = process_locked_limit();
    format_bytes(need, n_bytes);
    if (limit < 0 || limit >= n_bytes)
        return FAIL(ERR_FIT,
                    "does not fit: %s needs %s (%lld bytes) of host memory that the GPU can reach, "
                    "and it could not be pinned (%s): end what has pinned the rest, or plan for "
                    "less with host_memory",
                    what, need, (long long)n_bytes, reason);
    return FAIL(ERR_FIT,
                "does not fit: %s needs %s (%lld bytes) of host memory that the GPU can reach, and "
                "it could not be pinned (%s); this process may lock %s: raise the limit (ulimit -l "
                "unlimited), or plan for host_memory: %s",
                what, need, (long long)n_bytes, reason, format_bytes(may_lock, limit),
                room_setting(limit, most));
}

enum status room_refuse(const struct device_room *r, const char *what, int64_t n_bytes)
{
    char need[BYTES_TEXT], budget[BYTES_TEXT];
    struct str text = {0};
    room_add_text(r, &text);
    enum status status =
        FAIL(ERR_FIT,
             "does not fit: %s needs %s (%lld bytes), but %s. %s, or plan for device_memory: %s",
             what, format_bytes(need, n_bytes), (long long)n_bytes, str_text(&text),
             room_others(r) >= UNSPOKEN ? "End what holds the rest" : "Make the model smaller",
             room_setting(room_available(r), budget));
    str_release(&text);
    return status;
}
