# Ranks that die, stand still, are cut off or contradict each other: a few of each kind. `make fault`
# tries all.

nexar_program(fault rank fault/rank.c)
target_link_libraries(fault.rank PRIVATE nexar::nexar)
if(Python3_FOUND)
  nexar_test(fault quick ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/fault/fault.py
    $<TARGET_FILE_DIR:fault.rank> --quick)
  set_tests_properties(fault.quick PROPERTIES PROCESSORS 8 TIMEOUT 240)
endif()
