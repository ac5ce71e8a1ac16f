# Builds the programs of tools/ with Cargo, copies them to bin/ of the build tree, and defines the
# target nexar::run for the tests.

set(nexar_run ${PROJECT_BINARY_DIR}/bin/nexar-run)

add_custom_target(nexar_tools ALL
  COMMAND ${CARGO} build --release --package nexar-tools --locked --target-dir ${cargo_target}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/bin
  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${cargo_target}/release/nexar-run ${nexar_run}
  BYPRODUCTS ${nexar_run}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  COMMENT "Building nexar-run"
  USES_TERMINAL
  VERBATIM)
# Runs one Cargo at a time, because they would wait for each other's lock.
add_dependencies(nexar_tools nexar_library)

add_executable(nexar::run IMPORTED GLOBAL)
add_dependencies(nexar::run nexar_tools)
set_target_properties(nexar::run PROPERTIES IMPORTED_LOCATION ${nexar_run})
