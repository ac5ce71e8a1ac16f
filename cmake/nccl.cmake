# libnccl.so.2, the stand-in for NCCL: nexar and NCCL's functions in one file. It is in lib/nexar of
# the build tree and of the prefix, where no program finds it by accident.

set(nccl_directory ${nexar_lib}/nexar)
set(nccl_file ${nccl_directory}/libnccl.so.2)
set(nccl_archive ${cargo_target}/release/libnexar_nccl.a)
set(nccl_symbols ${PROJECT_SOURCE_DIR}/standins/nccl/symbols.txt)

# NCCL has every function also as pnccl*, for profilers that interpose, except for one that resets
# its log. Nothing else is exported, so libnexar.so can be loaded in the same process.
file(STRINGS ${nccl_symbols} names)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${nccl_symbols})
set(aliases "")
set(exports "")
foreach(name IN LISTS names)
  string(APPEND exports "    ${name};\n")
  if(NOT name STREQUAL "ncclResetDebugInitInternal")
    string(APPEND aliases "p${name} = ${name};\n")
    string(APPEND exports "    p${name};\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT nccl-aliases.ld CONTENT "${aliases}" @ONLY)
file(CONFIGURE OUTPUT nccl-exports.map
  CONTENT "{\n  global:\n${exports}  local:\n    *;\n};\n" @ONLY)

# rustc's own linker, which links libnexar.so too, if it exists: its code layout makes calls of a
# few bytes some percent faster.
get_filename_component(cargo_bin ${CARGO} DIRECTORY)
execute_process(COMMAND ${cargo_bin}/rustc --print target-libdir
  OUTPUT_VARIABLE rust_libdir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(rust_linker ${rust_libdir}/../bin/gcc-ld)
set(nccl_linker "")
if(EXISTS ${rust_linker}/ld.lld)
  set(nccl_linker -B${rust_linker} -fuse-ld=lld)
endif()

# The system libraries are those of libnexar.a.
separate_arguments(nccl_native_libs UNIX_COMMAND "${native_libs}")
add_custom_target(nexar_nccl ALL
  COMMAND ${CARGO} build --release --package nexar-nccl --locked --target-dir ${cargo_target}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${nccl_directory}
  COMMAND ${CMAKE_C_COMPILER} -shared ${nccl_linker} -o ${nccl_file}
    -Wl,-soname,libnccl.so.2 -Wl,-z,nodelete -Wl,-z,now -Wl,-z,defs -Wl,--gc-sections
    -Wl,--version-script=${PROJECT_BINARY_DIR}/nccl-exports.map
    ${PROJECT_BINARY_DIR}/nccl-aliases.ld
    -Wl,--whole-archive ${nccl_archive} -Wl,--no-whole-archive ${nccl_native_libs}
  COMMAND ${CMAKE_COMMAND} -E create_symlink libnccl.so.2 ${nccl_directory}/libnccl.so
  BYPRODUCTS ${nccl_file}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  COMMENT "Building libnccl.so.2"
  USES_TERMINAL
  VERBATIM)
# Runs one Cargo at a time, because they would wait for each other's lock.
add_dependencies(nexar_nccl nexar_tools)
