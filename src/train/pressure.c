#include "train/pressure.h"

#include "base/compiler.h"

enum { ROOMY_READINGS = 10 };

void pressure_init(struct pressure *p, const struct health_profile *profile, int64_t cooldown)
{
    *p = (struct pressure){
        .profile = profile, .cooldown = cooldown, .changed_at = -1, .health = HEALTH_HEALTHY};
}

static int64_t left_of(const struct health_input *in)
{
    return in->free > INT64_MAX - in->own ? INT64_MAX : in->free + in->own;
}

int64_t pressure_target(const struct pressure *p, const struct health_input *in)
{
    int64_t left = left_of(in);
    return left == INT64_MAX ? INT64_MAX : (int64_t)(p->profile->target * (double)left);
}

/* Has it been left alone for so many fifths of the cool-down? */
static bool has_rested(const struct pressure *p, int64_t step, int64_t fifths)
{
    return p->changed_at < 0 || step - p->changed_at >= (p->cooldown * fifths + 4) / 5;
}

static void count(struct pressure *p, const struct health_input *in)
{
    p->health = health_look(p->profile, in).health;
    for (int h = HEALTH_WARNING; h <= HEALTH_EMERGENCY; h++)
        p->n[h] = (int)p->health >= h ? p->n[h] + 1 : 0;
}

static bool has_too_little(const struct pressure *p, int64_t step)
{
    static const struct {
        int n, fifths;
    } rules[HEALTH_COUNT] = {
        [HEALTH_WARNING] = {3, 10}, [HEALTH_CRITICAL] = {2, 5}, [HEALTH_EMERGENCY] = {1, 2}};
    for (int h = HEALTH_WARNING; h <= HEALTH_EMERGENCY; h++) {
        if (p->n[h] >= rules[h].n && has_rested(p, step, rules[h].fifths))
            return true;
    }
    return false;
}

/* All that it had fits again: with what the target leaves free, or as it did at first. */
static bool has_all_back(const struct pressure *p, const struct health_input *in)
{
    return p->whole_need <= pressure_target(p, in) ||
           left_of(in) >= p->whole_room - p->whole_room / 64;
}

/* A quarter more than it has is worth a change. */
static bool has_more(const struct pressure *p, const struct health_input *in)
{
    return pressure_target(p, in) / 5 >= in->need / 4;
}

enum pressure_wish pressure_look(struct pressure *p, const struct health_input *in, int64_t step)
{
    count(p, in);
    if (has_too_little(p, step))
        return PRESSURE_LESS;
    bool all = p->gave_way && has_all_back(p, in);
    bool more = p->gave_way && has_more(p, in);
    p->n_roomy = all || more ? p->n_roomy + 1 : 0;
    if (p->n_roomy < ROOMY_READINGS || !has_rested(p, step, 10))
        return PRESSURE_NONE;
    return all ? PRESSURE_ALL : PRESSURE_MORE;
}

void pressure_note(struct pressure *p, enum pressure_wish wish, const struct health_input *before,
                   bool granted, int64_t step)
{
    p->changed_at = step;
    p->n_roomy = 0;
    for (int h = 0; h < HEALTH_COUNT; h++)
        p->n[h] = 0;
    if (!granted)
        return;
    if (wish == PRESSURE_LESS && !p->gave_way) {
        p->whole_need = before->need;
        p->whole_room = before->room;
    }
    p->gave_way = wish != PRESSURE_ALL;
}
