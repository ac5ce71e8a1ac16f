# Ranks that die, stop, are cut off, disagree or leave: a few of each kind. `make fault` tries all.

foreach(name IN ITEMS rank message mismatch quit join leave handles fork renew steady)
  nexar_program(fault ${name} fault/${name}.c)
  target_link_libraries(fault.${name} PRIVATE nexar::nexar Threads::Threads)
endforeach()
if(Python3_FOUND)
  nexar_test(fault quick ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/fault/fault.py
    ${CMAKE_CURRENT_BINARY_DIR} --quick)
  set_tests_properties(fault.quick PROPERTIES PROCESSORS 8)
endif()
