# The one place where instruction-set flags live.  A kernel file is named for
# its level: backend/cpu/kernels/<family>/<isa>.c, isa being none, avx2,
# avxvnni, avx512, vnni, bf16, amx, neon, neondot or i8mm.  Files of another architecture are left out of the build;
# dispatch at run time picks among those that are in.
set(QUERN_ISA_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(QUERN_ISA_avx512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw
                     -mavx512dq -mavx512vl -mavx512cd)
set(QUERN_ISA_vnni ${QUERN_ISA_avx512} -mavx512vnni)
set(QUERN_ISA_avxvnni ${QUERN_ISA_avx2} -mavxvnni)
set(QUERN_ISA_bf16 ${QUERN_ISA_vnni} -mavx512bf16)
set(QUERN_ISA_amx ${QUERN_ISA_bf16} -mamx-tile -mamx-int8 -mamx-bf16)
set(QUERN_ISA_neon "")
set(QUERN_ISA_neondot -march=armv8.2-a+dotprod)
set(QUERN_ISA_i8mm -march=armv8.2-a+dotprod+i8mm+bf16)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(QUERN_ISAS avx2 avxvnni avx512 vnni bf16 amx)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(QUERN_ISAS neon neondot i8mm)
else()
  set(QUERN_ISAS "")
endif()

# Families of plain loops, which the compiler turns into vectors.  It also
# unrolls, peels and repeats them at -O3, for twice the code and no more speed on
# arrays of any length.
set(QUERN_LOOP_FAMILIES map casts loops reduce scan)
set(QUERN_LOOP_FLAGS -O2 -ftree-vectorize)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND QUERN_LOOP_FLAGS -fvect-cost-model=dynamic
       --param=vect-epilogues-nomask=0)
endif()

# Under a sanitizer the same flags take minutes a file, for nothing.
set(QUERN_KERNEL_FLAGS -O3)
if(QUERN_SANITIZE)
  set(QUERN_KERNEL_FLAGS -O1)
  set(QUERN_LOOP_FLAGS -O1)
endif()

# clang takes many minutes for some of them with its sanitizers.  The targets are
# parsers; the suite under the sanitizers has the kernels, and the corpora.
if(QUERN_FUZZ)
  list(APPEND QUERN_KERNEL_FLAGS -fno-sanitize=all)
  list(APPEND QUERN_LOOP_FLAGS -fno-sanitize=all)
endif()

# Drops the files of other architectures from the list named `var` and sets
# the flags of the rest.
function(quern_isa_sources var)
  set(kept "")
  foreach(source ${${var}})
    get_filename_component(isa ${source} NAME_WE)
    if(isa MATCHES "^(avx2|avxvnni|avx512|vnni|bf16|amx|neon|neondot|i8mm)$")
      if(NOT isa IN_LIST QUERN_ISAS)
        continue()
      endif()
      get_filename_component(family ${source} DIRECTORY)
      get_filename_component(family ${family} NAME)
      set(speed ${QUERN_KERNEL_FLAGS})
      if(family IN_LIST QUERN_LOOP_FAMILIES)
        set(speed ${QUERN_LOOP_FLAGS})
      endif()
      # Object-file properties are per directory: rooms are made in src/.
      set_source_files_properties(${source} PROPERTIES
        COMPILE_OPTIONS "${QUERN_ISA_${isa}};${speed}")
    elseif(isa STREQUAL "none" AND QUERN_FUZZ)
      set_source_files_properties(${source} PROPERTIES
        COMPILE_OPTIONS "${QUERN_KERNEL_FLAGS}")
    elseif(isa STREQUAL "none" AND QUERN_ISAS AND NOT QUERN_SANITIZE)
      # Every processor of the architecture has something better, or nearly.
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -Os)
    endif()
    list(APPEND kept ${source})
  endforeach()
  set(${var} ${kept} PARENT_SCOPE)
endfunction()
