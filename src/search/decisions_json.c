/* decisions_json.c: what the JSON of decisions looks like.
 *
 *     {"recompute_cheap": true, ..., "ring_bytes": 1056964608,
 *      "away": [28, 28, 27, 0, 26], "disk": [0, 0, 0, 0, 0],
 *      "sets": [["krrm", "gate_up", "x"], ["kkkk", "", ""]],
 *      "places": [[0, true, true, false], [1, false, false, false], ...]}
 *
 * A set is a letter for each forward node of a place, and the words of reports; a place names its
 * set, and says which classes are at home elsewhere.
 */
#include "search/decisions_json.h"

#include <string.h>

#include "base/json.h"

/* In the order of enum treatment; a gradient that is never whole is of no saved set. */
static const char letters[] = "krm";

/* ---- writing --------------------------------------------------------------------------------- */

/* array becomes one longer; false: no memory. */
static bool append(json_t *array, json_t *item)
{
    return json_array_append_new(array, item) == 0;
}

static json_t *numbers_to_json(const int *n, int count)
{
    json_t *out = json_array();
    bool ok = out != NULL;
    for (int i = 0; i < count && ok; i++)
        ok = append(out, json_integer(n[i]));
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *set_to_json(const struct saved_set *s)
{
    struct str text = {0};
    for (int i = 0; i < s->n_nodes; i++)
        str_add_n(&text, &letters[s->treat[i]], 1);
    json_t *out = str_status(&text) == OK
                      ? json_pack("[s, s, s]", str_text(&text), s->recomputed, s->moved)
                      : NULL;
    str_release(&text);
    return out;
}

/* The first place that has the set of this one. */
static int first_alike(const struct decisions *d, int place)
{
    int like = 0;
    while (d->places[like].saved != d->places[place].saved)
        like++;
    return like;
}

/* Which of the sets, in the order of the places that have one first. */
static int set_index(const struct decisions *d, int place)
{
    const int like = first_alike(d, place);
    int index = 0;
    for (int p = 0; p < like; p++)
        index += first_alike(d, p) == p;
    return index;
}

static bool add_places(const struct decisions *d, json_t *sets, json_t *places)
{
    bool ok = sets && places;
    for (int p = 0; p < d->n_places && ok; p++) {
        const struct place_choice *x = &d->places[p];
        if (first_alike(d, p) == p)
            ok = append(sets, set_to_json(x->saved));
        ok = ok &&
             append(places, json_pack("[i, b, b, b]", set_index(d, p), (int)x->away[HOME_WEIGHTS],
                                      (int)x->away[HOME_STATES], (int)x->away[HOME_GRADIENTS]));
    }
    return ok;
}

json_t *decisions_to_json(const struct decisions *d)
{
    json_t *out = json_pack(
        "{s:b, s:I, s:i, s:b, s:I, s:I, s:I, s:I, s:o, s:o}", "recompute_cheap",
        (int)d->recompute_cheap, "halfway_bytes", (json_int_t)d->halfway_bytes, "group", d->group,
        "defer_updates", (int)d->defer_updates, "small_bytes", (json_int_t)d->small_bytes,
        "ring_bytes", (json_int_t)d->ring_bytes, "slice_bytes", (json_int_t)d->slice_bytes,
        "form_bytes", (json_int_t)d->form_bytes, "away", numbers_to_json(d->n, EXTENT_COUNT),
        "disk", numbers_to_json(d->disk, EXTENT_COUNT));
    if (!out || !d->places)
        return out;
    json_t *sets = json_array(), *places = json_array();
    bool ok = add_places(d, sets, places);
    ok = json_object_set_new(out, "sets", sets) == 0 && ok; /* takes it over even where it fails */
    ok = json_object_set_new(out, "places", places) == 0 && ok;
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum status refuse(const char *what)
{
    return FAIL(ERR_DATA, "decisions that are kept: %s is not what it should be", what);
}

/* A whole number from 0 to `most`. */
static bool read_number(const json_t *json, int64_t most, int64_t *out)
{
    *out = json_is_integer(json) ? (int64_t)json_integer_value(json) : -1;
    return *out >= 0 && *out <= most;
}

static bool read_bytes(const json_t *json, const char *name, int64_t *out)
{
    return read_number(json_object_get(json, name), INT64_MAX / 4, out);
}

static bool read_flag(const json_t *json, bool *out)
{
    *out = json_is_true(json);
    return json_is_boolean(json);
}

static bool read_numbers(const json_t *json, int *out, size_t count)
{
    int64_t n;
    bool ok = json_is_array(json) && json_array_size(json) == count;
    for (size_t i = 0; i < count && ok; i++) {
        ok = read_number(json_array_get(json, i), EXTENT_WHOLE, &n);
        out[i] = (int)n;
    }
    return ok;
}

static enum status read_set(const json_t *json, struct pool *pool, struct saved_set *out)
{
    const char *text = json_text(json_array_get(json, 0)),
               *recomputed = json_text(json_array_get(json, 1)),
               *moved = json_text(json_array_get(json, 2));
    enum treatment *treat;
    if (!text || !recomputed || !moved || strspn(text, letters) != strlen(text))
        return refuse("a saved set");
    const size_t n = strlen(text);
    TRY(pool_try(pool, &treat, n * sizeof(*treat) + 1));
    for (size_t i = 0; i < n; i++)
        treat[i] = (enum treatment)(strchr(letters, text[i]) - letters);
    *out =
        (struct saved_set){treat, (int)n, pool_strdup(pool, recomputed), pool_strdup(pool, moved)};
    return pool_status(pool);
}

static enum status read_place(const json_t *json, const struct saved_set *sets, size_t n_sets,
                              struct place_choice *out)
{
    int64_t set;
    bool ok = json_array_size(json) == 1 + HOME_CLASS_COUNT && n_sets > 0 &&
              read_number(json_array_get(json, 0), (int64_t)n_sets - 1, &set);
    for (int c = 0; c < HOME_CLASS_COUNT && ok; c++)
        ok = read_flag(json_array_get(json, (size_t)c + 1), &out->away[c]);
    if (!ok)
        return refuse("a place");
    out->saved = &sets[set];
    return OK;
}

static enum status read_places(const json_t *json, int n_places, struct pool *pool,
                               struct decisions *d)
{
    const json_t *sets = json_object_get(json, "sets"), *places = json_object_get(json, "places");
    const size_t n_sets = json_array_size(sets);
    struct saved_set *read;
    struct place_choice *out;
    d->places = NULL;
    d->n_places = 0;
    if (!places)
        return OK;
    if (json_array_size(places) != (size_t)n_places)
        return refuse("how many places there are");
    TRY(pool_try(pool, &read, n_sets * sizeof(*read) + 1));
    TRY(pool_try(pool, &out, (size_t)n_places * sizeof(*out)));
    for (size_t i = 0; i < n_sets; i++)
        TRY(read_set(json_array_get(sets, i), pool, &read[i]));
    for (int p = 0; p < n_places; p++)
        TRY(read_place(json_array_get(places, (size_t)p), read, n_sets, &out[p]));
    d->places = out;
    d->n_places = n_places;
    return OK;
}

enum status decisions_from_json(const json_t *json, int n_places, struct pool *pool,
                                struct decisions *d)
{
    int64_t group = 0;
    bool ok = read_flag(json_object_get(json, "recompute_cheap"), &d->recompute_cheap) &&
              read_flag(json_object_get(json, "defer_updates"), &d->defer_updates) &&
              read_number(json_object_get(json, "group"), INT_MAX, &group) &&
              read_bytes(json, "halfway_bytes", &d->halfway_bytes) &&
              read_bytes(json, "small_bytes", &d->small_bytes) &&
              read_bytes(json, "ring_bytes", &d->ring_bytes) &&
              read_bytes(json, "slice_bytes", &d->slice_bytes) &&
              read_bytes(json, "form_bytes", &d->form_bytes) &&
              read_numbers(json_object_get(json, "away"), d->n, EXTENT_COUNT) &&
              read_numbers(json_object_get(json, "disk"), d->disk, EXTENT_COUNT);
    if (!ok)
        return refuse("one of the numbers");
    d->group = (int)group;
    return read_places(json, n_places, pool, d);
}
