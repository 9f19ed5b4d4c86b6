# The page of a plan: src/report/page/*.{html,css,js} become one text with a place for the data, as C.
#     cmake -DFOLDER=src/report/page -DOUT=page.c -P cmake/Page.cmake
# In page.html a line @name.css@ or @name.js@ stands for that file, and @data@ for the plan's data.
file(READ ${FOLDER}/page.html page)
string(REGEX MATCHALL "@[a-z_]+\\.(css|js)@" places "${page}")
foreach(place IN LISTS places)
    string(REPLACE "@" "" name ${place})
    file(READ ${FOLDER}/${name} part)
    string(REPLACE "${place}" "${part}" page "${page}")
endforeach()

string(FIND "${page}" "@data@" at)
if(at LESS 0)
    message(FATAL_ERROR "${FOLDER}/page.html has no @data@")
endif()

# Bytes as numbers: a string literal may not be this long.
function(add_text name text)
    file(WRITE ${OUT}.part "${text}")
    file(READ ${OUT}.part bytes HEX)
    file(REMOVE ${OUT}.part)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)" "\\0\n" bytes "${bytes}")
    file(APPEND ${OUT} "extern const unsigned char ${name}[];\nconst unsigned char ${name}[] = {${bytes}0};\n")
endfunction()

file(WRITE ${OUT} "/* Made from ${FOLDER} by cmake/Page.cmake. */\n")
string(SUBSTRING "${page}" 0 ${at} head)
math(EXPR at "${at} + 6")
string(SUBSTRING "${page}" ${at} -1 tail)
add_text(page_head "${head}")
add_text(page_tail "${tail}")
