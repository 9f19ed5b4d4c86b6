# The files of a folder as constants of C: live.js becomes live_js[] and live_js_size.
#     cmake -DFOLDER=src/watch/page -DOUT=texts.c -P cmake/Texts.cmake
file(GLOB files ${FOLDER}/*)
file(WRITE ${OUT} "/* Made by cmake/Texts.cmake. */\n#include <stddef.h>\n")
foreach(path IN LISTS files)
    get_filename_component(name ${path} NAME)
    string(REGEX REPLACE "[.-]" "_" name ${name})
    file(READ ${path} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)" "\\0\n" bytes "${bytes}")
    file(APPEND ${OUT} "extern const unsigned char ${name}[];\nextern const size_t ${name}_size;\n"
                       "const unsigned char ${name}[] = {${bytes}0};\nconst size_t ${name}_size = sizeof(${name}) - 1;\n")
endforeach()
