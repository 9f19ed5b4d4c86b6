/* tfevents.c: see tfevents.h.
 *
 * The protobuf fields we write (field number, wire type):
 *     Event    1 wall_time double; 2 step varint; 3 file_version string; 5 summary message
 *     Summary  1 value message
 *     Value    1 tag string; 2 simple_value float
 */
#include "report/tfevents.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Bit by bit: records are some 50 bytes, a table would buy nothing. */
uint32_t crc32c(const void *data, size_t n_bytes)
{
    const uint8_t *bytes = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* The file format masks its CRCs, because a CRC over data that holds CRCs is weak. */
static uint32_t masked_crc(const void *data, size_t n_bytes)
{
    uint32_t crc = crc32c(data, n_bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void add_fixed(struct str *s, uint64_t value, int n_bytes)
{
    char bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (char)(value >> (8 * i) & 0xff);
    str_add_n(s, bytes, (size_t)n_bytes);
}

static void add_varint(struct str *s, uint64_t value)
{
    while (value >= 0x80) {
        add_fixed(s, (value & 0x7f) | 0x80, 1);
        value >>= 7;
    }
    add_fixed(s, value, 1);
}

static void add_key(struct str *s, unsigned field, enum wire wire)
{
    add_varint(s, (uint64_t)field << 3 | (unsigned)wire);
}

static void add_double(struct str *s, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    add_key(s, field, WIRE_64);
    add_fixed(s, bits, 8);
}

static void add_float(struct str *s, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    add_key(s, field, WIRE_32);
    add_fixed(s, bits, 4);
}

static void add_bytes(struct str *s, unsigned field, const char *text, size_t n_bytes)
{
    add_key(s, field, WIRE_BYTES);
    add_varint(s, n_bytes);
    str_add_n(s, text, n_bytes);
}

static size_t varint_bytes(uint64_t value)
{
    size_t n = 1;
    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

/* Records start with room for length and CRC; write_record fills it in. */
enum { FRAME_BYTES = 12 };

static struct str *begin_record(struct tfevents *t, double wall_time_s)
{
    str_clear(&t->record);
    add_fixed(&t->record, 0, 8);
    add_fixed(&t->record, 0, 4);
    add_double(&t->record, 1, wall_time_s);
    return &t->record;
}

static enum status write_record(struct tfevents *t)
{
    struct str *s = &t->record;
    TRY(str_status(s));
    uint64_t n_payload = s->n - FRAME_BYTES;
    for (int i = 0; i < 8; i++)
        s->text[i] = (char)(n_payload >> (8 * i) & 0xff);
    uint32_t length_crc = masked_crc(s->text, 8);
    for (int i = 0; i < 4; i++)
        s->text[8 + i] = (char)(length_crc >> (8 * i) & 0xff);
    add_fixed(s, masked_crc(s->text + FRAME_BYTES, (size_t)n_payload), 4);
    TRY(str_status(s));
    return file_out_write(&t->file, s->text, s->n);
}

/* The first free name: two files opened in one second by one process differ in the last number. */
static enum status choose_path(struct tfevents *t, const char *folder, double wall_time_s)
{
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0 || !host[0])
        (void)strcpy(host, "localhost");
    struct str path = {0};
    for (int number = 0; number == 0 || file_exists(str_text(&path)); number++) {
        str_clear(&path);
        str_addf(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, (long long)wall_time_s,
                 host, (long)getpid(), number);
        if (path.failed)
            break;
    }
    enum status status = str_status(&path);
    if (status == OK)
        t->path = str_take(&path);
    str_release(&path);
    return status;
}

enum status tfevents_open(struct tfevents *t, const char *folder, double wall_time_s)
{
    *t = (struct tfevents){.file = {.fd = -1}};
    enum status status;
    TRY_GOTO(file_make_folders(folder), out);
    TRY_GOTO(choose_path(t, folder, wall_time_s), out);
    TRY_GOTO(file_out_open(&t->file, t->path), out);

    static const char version[] = "brain.Event:2";
    add_bytes(begin_record(t, wall_time_s), 3, version, sizeof(version) - 1);
    TRY_GOTO(write_record(t), out);
    return OK;
out:
    (void)!tfevents_close(t);
    return status;
}

enum status tfevents_scalar(struct tfevents *t, double wall_time_s, int64_t step, const char *tag,
                            float value)
{
    size_t n_tag = strlen(tag);
    size_t n_value = 1 + varint_bytes(n_tag) + n_tag + 1 + 4; /* tag, simple_value */
    size_t n_summary = 1 + varint_bytes(n_value) + n_value;

    struct str *s = begin_record(t, wall_time_s);
    add_key(s, 2, WIRE_VARINT);
    add_varint(s, (uint64_t)step);
    add_key(s, 5, WIRE_BYTES);
    add_varint(s, n_summary);
    add_key(s, 1, WIRE_BYTES);
    add_varint(s, n_value);
    add_bytes(s, 1, tag, n_tag);
    add_float(s, 2, value);
    return write_record(t);
}

enum status tfevents_sync(struct tfevents *t)
{
    return file_out_sync(&t->file);
}

enum status tfevents_close(struct tfevents *t)
{
    enum status status = file_out_close(&t->file);
    str_release(&t->record);
    mem_free(t->path);
    *t = (struct tfevents){.file = {.fd = -1}};
    return status;
}
