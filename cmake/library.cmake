# Builds the library with Cargo, copies it to lib/ of the build tree, and defines the target
# nexar::nexar, which find_package(nexar) defines for an installed library.

find_program(CARGO cargo HINTS "$ENV{HOME}/.cargo/bin")
if(NOT CARGO)
  message(FATAL_ERROR "nexar is built by cargo, which was not found: please install Rust.")
endif()

# Cargo's own default, so that `cargo build --release` and CMake share their work.
set(cargo_target ${PROJECT_SOURCE_DIR}/target)
set(nexar_lib ${PROJECT_BINARY_DIR}/lib)
set(nexar_soname libnexar.so.${PROJECT_VERSION_MAJOR})
set(nexar_file libnexar.so.${PROJECT_VERSION})

# Runs Cargo in every build, because Cargo tracks the dependencies.
add_custom_target(nexar_library ALL
  COMMAND ${CARGO} build --release --lib --locked --target-dir ${cargo_target}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${nexar_lib}
  COMMAND ${CMAKE_COMMAND} -E copy_if_different
    ${cargo_target}/release/libnexar.so ${nexar_lib}/${nexar_file}
  COMMAND ${CMAKE_COMMAND} -E create_symlink ${nexar_file} ${nexar_lib}/${nexar_soname}
  COMMAND ${CMAKE_COMMAND} -E create_symlink ${nexar_soname} ${nexar_lib}/libnexar.so
  COMMAND ${CMAKE_COMMAND} -E copy_if_different
    ${cargo_target}/release/libnexar.a ${nexar_lib}/libnexar.a
  BYPRODUCTS ${nexar_lib}/${nexar_file} ${nexar_lib}/libnexar.a
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  COMMENT "Building libnexar"
  USES_TERMINAL
  VERBATIM)

add_library(nexar::nexar SHARED IMPORTED GLOBAL)
add_dependencies(nexar::nexar nexar_library)
set_target_properties(nexar::nexar PROPERTIES
  IMPORTED_LOCATION ${nexar_lib}/${nexar_file}
  IMPORTED_SONAME ${nexar_soname}
  INTERFACE_INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/include)

# The system libraries of libnexar.a, from `cargo rustc --lib --crate-type staticlib -- --print
# native-static-libs`. The test package.native-libs compares them.
set(native_libs "-ldl -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc")
