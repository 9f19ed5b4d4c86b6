# The source list: the files of the folders below, and of src/ops those that src/graph/ops.def names. A row
#     OP(softmax, reduce, YES, NO)
# means src/ops/softmax.c and, where a device column says YES, a file reduce.c (reduce.cu) in one of the rooms of
# src/device/<device>; a row without its file stops here. What the CUDA kernels declare is in every build.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/graph/ops.def)
file(STRINGS src/graph/ops.def rows REGEX "^OP\\(")
file(GLOB SNUG_SOURCES CONFIGURE_DEPENDS
    src/base/*.c src/graph/*.c src/rewrite/*.c src/autodiff/*.c src/model/*.c src/model/layers/*.c src/model/branches/*.c src/config/*.c src/precision/*.c
    src/optim/*.c src/device/*.c src/device/cpu/*.c src/device/cpu/*/*.c src/device/card/*.c src/device/disk/*.c
    src/device/cuda/cuda_kernels.c src/device/cuda/declared/*.c src/device/cuda/runtime/nvml.c src/plan/*.c src/program/*.c src/search/*.c src/run/*.c
    src/dist/*.c src/data/*.c src/io/*.c src/task/*.c src/engine/*.c src/train/*.c src/report/*.c src/watch/*.c src/api/*.c)

function(require_family row device family extension)
    file(GLOB found src/device/${device}/*/${family}.${extension})
    if(NOT found)
        message(FATAL_ERROR "src/graph/ops.def: ${row}: there is no src/device/${device}/*/${family}.${extension}")
    endif()
endfunction()

list(APPEND SNUG_SOURCES src/ops/op_table.c src/ops/op_support.c src/ops/window_support.c)
foreach(row IN LISTS rows)
    string(REGEX MATCH "^OP\\(([a-z0-9_]+), +([a-z0-9_]+), +(YES|NO), +(YES|NO)\\)" matched "${row}")
    if(NOT matched)
        message(FATAL_ERROR "src/graph/ops.def: cannot read this row: ${row}")
    endif()
    set(cpu ${CMAKE_MATCH_3})
    set(cuda ${CMAKE_MATCH_4})
    list(APPEND SNUG_SOURCES src/ops/${CMAKE_MATCH_1}.c)
    if(cpu)
        require_family(${row} cpu ${CMAKE_MATCH_2} c)
    endif()
    if(cuda)
        require_family(${row} cuda ${CMAKE_MATCH_2} cu)
    endif()
endforeach()
