# The ABI that a compiled program relies on: the header in C and C++, values, layout and symbols.

set(header ${PROJECT_SOURCE_DIR}/include/nexar.h)
set(strict -Wall -Wextra -Wpedantic -Werror)

nexar_program(abi values abi/values.c)
target_link_libraries(abi.values PRIVATE nexar::nexar)
nexar_unwatched_test(abi values abi.values)

nexar_unwatched_test(abi header-c99
  ${CMAKE_C_COMPILER} -std=c99 ${strict} -fsyntax-only -x c ${header})
nexar_program(abi twice-c99 abi/twice.c abi/twice_other.c)
set_target_properties(abi.twice-c99 PROPERTIES C_STANDARD 99)
target_compile_options(abi.twice-c99 PRIVATE ${strict})
target_link_libraries(abi.twice-c99 PRIVATE nexar::nexar)
nexar_unwatched_test(abi twice-c99 abi.twice-c99)

if(CMAKE_CXX_COMPILER)
  nexar_unwatched_test(abi header-c++11
    ${CMAKE_CXX_COMPILER} -std=c++11 ${strict} -fsyntax-only -x c++ ${header})
  nexar_program(abi twice-c++11 abi/twice.cc abi/twice_other.cc)
  set_target_properties(abi.twice-c++11 PROPERTIES CXX_STANDARD 11 CXX_EXTENSIONS OFF)
  target_compile_options(abi.twice-c++11 PRIVATE ${strict})
  target_link_libraries(abi.twice-c++11 PRIVATE nexar::nexar)
  nexar_unwatched_test(abi twice-c++11 abi.twice-c++11)
endif()

nexar_unwatched_test(abi symbols sh ${CMAKE_CURRENT_SOURCE_DIR}/abi/symbols.sh
  ${CMAKE_NM} $<TARGET_FILE:nexar::nexar> ${header})
nexar_unwatched_test(abi dynamic-section sh ${CMAKE_CURRENT_SOURCE_DIR}/abi/dynamic_section.sh
  ${CMAKE_READELF} $<TARGET_FILE:nexar::nexar> ${nexar_soname})
