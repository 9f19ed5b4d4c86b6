# The source list. Ops and their kernels come from src/graph/ops.def: a row
#     OP(softmax, reduce, YES, NO)
# means src/ops/softmax.c and, where a device column says YES, src/device/<device>/reduce.c.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/graph/ops.def)
file(STRINGS src/graph/ops.def rows REGEX "^OP\\(")
set(op_sources)
foreach(row IN LISTS rows)
    string(REGEX MATCH "^OP\\(([a-z0-9_]+), +([a-z0-9_]+), +(YES|NO), +(YES|NO)\\)" matched "${row}")
    if(NOT matched)
        message(FATAL_ERROR "src/graph/ops.def: cannot read this row: ${row}")
    endif()
    list(APPEND op_sources src/ops/${CMAKE_MATCH_1}.c)
    if(CMAKE_MATCH_3 STREQUAL "YES")
        list(APPEND op_sources src/device/cpu/${CMAKE_MATCH_2}.c)
    endif()
endforeach()
list(REMOVE_DUPLICATES op_sources)

file(GLOB SNUG_SOURCES CONFIGURE_DEPENDS
    src/base/*.c src/graph/*.c src/rewrite/*.c src/autodiff/*.c src/model/*.c src/precision/*.c
    src/optim/*.c src/device/*.c src/plan/*.c src/program/*.c src/run/*.c src/dist/*.c src/data/*.c
    src/io/*.c src/train/*.c src/api/*.c)
# Files of a device that belong to no single family: the op's table, memory, shared loops.
list(APPEND SNUG_SOURCES src/ops/op_table.c src/ops/op_support.c ${op_sources})
file(GLOB cpu_support CONFIGURE_DEPENDS src/device/cpu/cpu*.c)
list(APPEND SNUG_SOURCES ${cpu_support})
