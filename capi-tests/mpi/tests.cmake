# nexar and Open MPI give the same results: mpi.agreement.<number of ranks>.

nexar_program(mpi with_nexar mpi/with_nexar.c)
target_link_libraries(mpi.with_nexar PRIVATE nexar::nexar m)
nexar_program(mpi compare mpi/compare.c)
target_link_libraries(mpi.compare PRIVATE m)

foreach(n IN ITEMS 2 3 4)
  nexar_test(mpi agreement.${n} sh ${CMAKE_CURRENT_SOURCE_DIR}/mpi/agreement.sh
    ${n} $<TARGET_FILE:nexar::run> $<TARGET_FILE:mpi.with_nexar> $<TARGET_FILE:mpi.compare>)
  set_tests_properties(mpi.agreement.${n} PROPERTIES PROCESSORS ${n} SKIP_RETURN_CODE 77)
endforeach()
