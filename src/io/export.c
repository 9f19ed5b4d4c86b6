/* export.c: see export.h. */
#include "io/export.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/str.h"
#include "base/temporary.h"
#include "data/chat.h"
#include "io/hf_dir.h"
#include "io/json_file.h"
#include "io/peft.h"
#include "io/replace_folder.h"
#include "io/weights.h"
#include "io/weights_convert.h"

/* ---- the files ---- */

/* Finite values of 65520 and above would become infinities. t: elements of p from `first` on. */
static enum status check_fits_f16(const struct model_param *p, int64_t first,
                                  const struct tensor *t)
{
    enum { RUN = 1024 };
    double x[RUN];
    if (!dtype_is_float(t->dtype) || t->dtype == DTYPE_F16)
        return OK;
    int64_t n = shape_elems(&t->shape);
    for (int64_t e = 0; e < n; e += RUN) {
        int64_t n_now = MIN((int64_t)RUN, n - e);
        weights_to_double(t->dtype, (const char *)t->data + e * dtype_size(t->dtype), n_now, x);
        for (int64_t i = 0; i < n_now; i++)
            if (isfinite(x[i]) && fabs(x[i]) >= 65520.0)
                return FAIL(ERR_CONFIG,
                            "%s: element %lld is %g, which f16 cannot hold; save as bf16 or f32",
                            p->name, (long long)(first + e + i), x[i]);
    }
    return OK;
}

static enum status write_config(const char *folder, const struct export_content *c)
{
    enum status status;
    json_t *config = model_export_config(c->model);
    if (!config) {
        status = FAIL(ERR_MEMORY, "%s: out of memory for config.json", folder);
        goto out;
    }
    TRY_GOTO(model_config_set_dtype(config, c->dtype), out);
    TRY_GOTO(json_file_write(folder, "config.json", config), out);
out:
    json_decref(config);
    return status;
}

/* What transformers takes before the one in tokenizer_config.json. */
static enum status write_template(const char *folder, const char *family)
{
    const struct chat_family *f = chat_family_named(family);
    struct str jinja = {0}, path = {0};
    enum status status;
    if (!f)
        return FAIL(ERR_CONFIG, "there is no chat template '%s'", family);
    str_addf(&path, "%s/chat_template.jinja", folder);
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(chat_family_jinja(f, &jinja), out);
    TRY_GOTO(file_write_atomic(path.text, jinja.text, jinja.n), out);
out:
    str_release(&jinja);
    str_release(&path);
    return status;
}

static enum status check_all_fit_f16(const struct export_content *c)
{
    for (int i = 0; i < c->n_params; i++) {
        const struct tensor *t = &c->tensors[i];
        int64_t n = shape_elems(&t->shape), most = stage_elems(c->stage, t, 1);
        for (int64_t at = 0; at < n && !(c->adapter && c->params[i].frozen); at += most) {
            struct tensor part = tensor_part(t, at, MIN(most, n - at)), host;
            TRY(stage_fetch(c->stage, &part, &host));
            TRY(check_fits_f16(&c->params[i], at, &host));
        }
    }
    return OK;
}

enum status export_write(const char *folder, const struct export_content *c)
{
    struct weights_save_options options = {.dtype = c->as_in_memory ? DTYPE_NONE : c->dtype,
                                           .max_shard_bytes = c->max_shard_bytes,
                                           .sync = true};
    if (options.dtype == DTYPE_F16)
        TRY(check_all_fit_f16(c));
    TRY(write_config(folder, c));
    if (c->adapter) {
        TRY(peft_write_config(folder, c->model, c->params, c->n_params, c->base));
        TRY(peft_save(folder, c->params, c->n_params, c->tensors, c->stage, &options));
    } else {
        TRY(weights_save(folder, c->params, c->n_params, c->tensors, c->stage, &options));
    }
    if (c->extras_folder)
        TRY(hf_dir_copy_extras(c->extras_folder, folder));
    return c->chat_family ? write_template(folder, c->chat_family) : OK;
}

/* ---- the folder ---- */

struct contents {
    int n_entries;
    bool has_folder;
};

static enum status look_into(const char *folder, struct contents *out)
{
    *out = (struct contents){0};
    DIR *d = opendir(folder);
    if (!d)
        return FAIL(ERR_IO, "%s: cannot open folder", folder);
    struct str path = {0};
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        out->n_entries++;
        str_clear(&path);
        str_addf(&path, "%s/%s", folder, e->d_name);
        if (path.failed)
            break;
        out->has_folder |= file_is_folder(path.text) != 0;
    }
    (void)closedir(d);
    enum status status = out->n_entries ? str_status(&path) : OK;
    str_release(&path);
    return status;
}

/* OK when out_dir can be made or replaced. */
static enum status check_target(const char *out_dir, const struct export_content *c, bool force)
{
    if (!file_exists(out_dir))
        return OK;
    if (!file_is_folder(out_dir))
        return FAIL(ERR_USAGE, "%s: exists and is not a folder; choose another name", out_dir);
    if ((c->weights_folder && file_is_same(c->weights_folder, out_dir)) ||
        (c->extras_folder && file_is_same(c->extras_folder, out_dir)))
        return FAIL(ERR_USAGE, "%s: the model is read from there; choose another name", out_dir);
    struct contents contents;
    TRY(look_into(out_dir, &contents));
    if (contents.n_entries == 0)
        return OK;
    if (contents.has_folder)
        return FAIL(ERR_USAGE,
                    "%s: has folders in it, so it is not replaced; choose another name, or move it "
                    "away first",
                    out_dir);
    if (!force)
        return FAIL(ERR_USAGE,
                    "%s: not empty; choose another folder, or force it (--force), which removes "
                    "what is there",
                    out_dir);
    return OK;
}

struct target {
    struct pool pool;
    const char *parent, *final, *temporary, *aside;
};

static enum status name_target(struct target *t, const char *out_dir)
{
    size_t n = strlen(out_dir);
    while (n > 1 && out_dir[n - 1] == '/')
        n--;
    t->final = pool_strndup(&t->pool, out_dir, n);
    TRY(pool_status(&t->pool));
    const char *slash = strrchr(t->final, '/');
    const char *name = slash ? slash + 1 : t->final;
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return FAIL(ERR_USAGE, "'%s': give the name of the folder to make", out_dir);
    t->parent = !slash              ? pool_strdup(&t->pool, ".")
                : slash == t->final ? pool_strdup(&t->pool, "/")
                                    : pool_strndup(&t->pool, t->final, (size_t)(slash - t->final));
    TRY(pool_status(&t->pool));
    t->temporary = pool_printf(&t->pool, "%s/.tmp-export-%s-%ld", t->parent, name, (long)getpid());
    t->aside = pool_printf(&t->pool, "%s/.old-export-%s-%ld", t->parent, name, (long)getpid());
    return pool_status(&t->pool);
}

enum status export_model(const char *out_dir, const struct export_content *content, bool force)
{
    struct target t = {0};
    pool_init(&t.pool);
    bool started = false;
    enum status status;
    if (content->extras_folder && !file_is_folder(content->extras_folder)) {
        status =
            FAIL(ERR_IO, "%s: no such folder to copy the tokenizer from", content->extras_folder);
        goto out;
    }
    TRY_GOTO(name_target(&t, out_dir), out);
    TRY_GOTO(check_target(t.final, content, force), out);
    TRY_GOTO(file_make_folders(t.parent), out);
    TRY_GOTO(file_remove_tree(t.temporary), out);
    temporary_note(t.temporary);
    started = true;
    TRY_GOTO(file_make_folders(t.temporary), out);
    TRY_GOTO(export_write(t.temporary, content), out);
    TRY_GOTO(replace_folder(t.parent, t.temporary, t.final, t.aside), out);
    started = false;
    if (file_remove_tree(t.aside) != OK)
        log_warn("the export is written, but the old one is still there: %s", status_message());
out:
    if (started)
        (void)!file_remove_tree(t.temporary);
    if (t.temporary)
        temporary_forget(t.temporary);
    pool_release(&t.pool);
    return status;
}
