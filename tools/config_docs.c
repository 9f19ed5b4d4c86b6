/* config_docs: prints docs/CONFIG.md from the config schema, on stdout. */
#include <stdio.h>

#include "base/str.h"
#include "config/config.h"

int main(void)
{
    struct str text = {0};
    config_docs_markdown(&text);
    int good = str_status(&text) == OK && fputs(str_text(&text), stdout) >= 0;
    str_release(&text);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
