/* temporary.h: names of files and folders that are to vanish when the process is ended by a signal.
 *
 * What is being written carries a temporary name until it is whole. Whoever makes one notes the
 * name before and forgets it after (renamed or removed); a signal handler that ends the process
 * removes what is still noted. Notes are a courtesy: when there is no room for one it is not kept.
 * Safe from several threads.
 */
#ifndef SNUG_BASE_TEMPORARY_H
#define SNUG_BASE_TEMPORARY_H

#ifdef __cplusplus
extern "C" {
#endif

void temporary_note(const char *path);
void temporary_forget(const char *path);

/* Removes every noted file, and every noted folder with the files in it (folders inside stay).
 * Async-signal-safe. */
void temporary_remove_all(void);

#ifdef __cplusplus
}
#endif
#endif
