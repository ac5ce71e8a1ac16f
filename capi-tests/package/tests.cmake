# The installed package, used by projects outside the source tree.

nexar_test(package native-libs sh ${CMAKE_CURRENT_SOURCE_DIR}/package/native_libs.sh
  ${CARGO} ${PROJECT_BINARY_DIR}/nexar.pc)
# The test may compile the library and its dependencies.
set_tests_properties(package.native-libs PROPERTIES
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})

find_program(PKG_CONFIG_EXECUTABLE NAMES pkg-config pkgconf)
if(PKG_CONFIG_EXECUTABLE)
  nexar_test(package foreign
    ${CMAKE_COMMAND} -E env
      CMAKE=${CMAKE_COMMAND}
      PKG_CONFIG=${PKG_CONFIG_EXECUTABLE}
      READELF=${CMAKE_READELF}
      CC=${CMAKE_C_COMPILER}
      CXX=$<$<BOOL:${CMAKE_CXX_COMPILER}>:${CMAKE_CXX_COMPILER}>
      sh ${CMAKE_CURRENT_SOURCE_DIR}/package/foreign.sh
        ${PROJECT_BINARY_DIR} ${CMAKE_INSTALL_LIBDIR} ${PROJECT_VERSION})
else()
  message(STATUS "No pkg-config found: the package test is left out")
endif()
