# Ranks that die, stand still, are cut off or contradict each other: a few of each kind. `make fault`
# tries all.

foreach(name IN ITEMS rank join steady)
  nexar_program(fault ${name} fault/${name}.c)
  target_link_libraries(fault.${name} PRIVATE nexar::nexar)
endforeach()
if(Python3_FOUND)
  nexar_test(fault quick ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/fault/fault.py
    $<TARGET_FILE_DIR:fault.rank> --quick)
  set_tests_properties(fault.quick PROPERTIES PROCESSORS 8 TIMEOUT 240)
endif()
