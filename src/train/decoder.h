/* decoder.h: tokens drawn one after the other, and their text handed on as it comes. What
 * generating and chatting share. */
#ifndef SNUG_TRAIN_DECODER_H
#define SNUG_TRAIN_DECODER_H

#include "train/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct decoder {
    struct inference *x;               /* borrowed, as the tokenizer */
    const struct tokenizer *tokenizer; /* of which special tokens have no text */
    struct sampler sampler;
    struct token_list stops;   /* each ends the text */
    struct str stop_texts[2];  /* so does each of these, once it is in it; n 0: none */
    struct token_list made;    /* without what ended it */
    struct str text;           /* of them */
    struct utf8_stream stream; /* bytes of a character that is not whole */
    struct str waiting;        /* text that may be the beginning of a stop text */
};
void decoder_release(struct decoder *d);

struct decoding {
    int64_t first;   /* position of the first token that is drawn */
    int64_t max_new; /* of them */
    generate_callback on_text;
    void *user;
    const volatile sig_atomic_t *stop;
};

/* Begins with the logits that the tokens before gave. *ended: by a stop token or text. */
enum status decoder_run(struct decoder *d, struct tensor logits, const struct decoding *how,
                        bool *ended) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
