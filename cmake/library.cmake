# libtessera: the rooms as a static and a shared library, their CMake package and their pkg-config file. Include this
# file before the rooms are added, because it sets how all files are compiled. Call tessera_library() after them.
option(TESSERA_LIBRARY "Build libtessera and what programs need to use it" ON)
option(TESSERA_BUNDLE "Put the libraries that Tessera needs, which must be static, into libtessera.a" OFF)

# The program and both libraries consist of the same objects, so every file is compiled once. Position-independent code
# costs nothing as long as calls between files need no table: the objects of rooms therefore export nothing by default
# (tessera_room()), and the headers in include/tessera mark what the shared library exports (TESSERA_API).
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# tessera_library() adds libtessera.a (tessera_static) and libtessera.so (tessera_shared), and installs both with the
# headers, the CMake package Tessera and tessera.pc.
function(tessera_library)
  if(NOT TESSERA_LIBRARY OR TESSERA_SYNTAX_ONLY)
    return()
  endif()
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  set(rooms base jinja device ops comm data model optim engine store log report workshop settings load plan session
      train api)
  set(room_files)
  set(room_targets)
  foreach(room ${rooms})
    list(APPEND room_targets tessera_${room})
    list(APPEND room_files $<TARGET_FILE:tessera_${room}>)
  endforeach()

  # What a program that links libtessera.a must link in addition: the libraries of the rooms. tests/cli/library_test.py
  # finds what is missing here.
  set(static_find "find_dependency(Threads)\nfind_dependency(BLAS)\nfind_dependency(fmt)\nfind_dependency(PkgConfig)
pkg_check_modules(TESSERA_ONIG REQUIRED IMPORTED_TARGET oniguruma)
pkg_check_modules(TESSERA_UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(TESSERA_XXHASH REQUIRED IMPORTED_TARGET libxxhash)")
  set(static_libraries Threads::Threads BLAS::BLAS fmt::fmt PkgConfig::TESSERA_ONIG PkgConfig::TESSERA_UTF8PROC
      PkgConfig::TESSERA_XXHASH ${CMAKE_DL_LIBS})
  set(pc_requires "oniguruma libutf8proc libxxhash fmt")
  set(pc_libraries "${BLAS_LIBRARIES} -lpthread -ldl -lstdc++ -lm")
  if(TESSERA_BUNDLE)
    list(APPEND room_files $<TARGET_FILE:fmt::fmt> ${ONIG_LINK_LIBRARIES} ${UTF8PROC_LINK_LIBRARIES} ${XXHASH_LINK_LIBRARIES}
         ${BLAS_LIBRARIES})
    list(FILTER room_files EXCLUDE REGEX "^-|\\.so$")
    set(static_find "find_dependency(Threads)")
    set(static_libraries Threads::Threads ${CMAKE_DL_LIBS})
    set(pc_requires)
    set(pc_libraries "-lpthread -ldl -lstdc++ -lm")
  endif()
  if(MPI_C_FOUND)
    string(APPEND static_find "\nenable_language(C)\nfind_dependency(MPI COMPONENTS C)")
    list(APPEND static_libraries MPI::MPI_C)
    list(APPEND pc_libraries ${MPI_C_LIBRARIES})
  endif()
  if(TESSERA_HAVE_CUDA)
    string(APPEND static_find "\nfind_dependency(CUDAToolkit)")
    list(APPEND static_libraries CUDA::cudart_static)
    list(APPEND pc_libraries -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt)
  endif()
  string(REPLACE ";" " " pc_libraries "${pc_libraries}")

  # One archive with the objects of all rooms: a static library of CMake has only its own objects.
  set(archive ${PROJECT_BINARY_DIR}/libtessera.a)
  set(script ${PROJECT_BINARY_DIR}/libtessera.mri)
  set(lines "create ${archive}\n")
  foreach(file ${room_files})
    string(APPEND lines "addlib ${file}\n")
  endforeach()
  file(GENERATE OUTPUT ${script} CONTENT "${lines}save\nend\n")
  add_custom_command(OUTPUT ${archive} COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
                     COMMAND ${CMAKE_AR} -M < ${script} DEPENDS ${room_targets} ${script} VERBATIM
                     COMMENT "Joining the rooms to libtessera.a")
  add_custom_target(tessera_static ALL DEPENDS ${archive})

  # CMake wants a source file. The library has all objects of the room `api`, which nothing inside the library calls, and
  # what they need of the other rooms.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/libtessera.cc CONTENT "// libtessera.so consists of the rooms.\n")
  add_library(tessera_shared SHARED ${PROJECT_BINARY_DIR}/libtessera.cc)
  target_link_libraries(tessera_shared PRIVATE
    -Wl,--whole-archive $<TARGET_FILE:tessera_api> -Wl,--no-whole-archive tessera_api)
  # Before version 1.0, a minor version may change the interface, so programs must not load another one.
  set(interface_version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  set(symbols ${PROJECT_SOURCE_DIR}/cmake/library.map)
  target_link_options(tessera_shared PRIVATE -Wl,--version-script=${symbols} -Wl,--no-undefined)
  set_target_properties(tessera_shared PROPERTIES OUTPUT_NAME tessera VERSION ${PROJECT_VERSION}
                        SOVERSION ${interface_version} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                        LINK_DEPENDS ${symbols})

  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS tessera_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h")
  install(FILES ${PROJECT_BINARY_DIR}/include/tessera/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
  install(FILES README.md CHANGELOG.md docs/library.md docs/python.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

  set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
  set(made ${PROJECT_BINARY_DIR}/package)
  configure_package_config_file(cmake/TesseraConfig.cmake.in ${made}/TesseraConfig.cmake
                                INSTALL_DESTINATION ${package_folder}
                                PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${made}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  configure_file(cmake/tessera.pc.in ${made}/tessera.pc @ONLY)
  install(FILES ${made}/TesseraConfig.cmake ${made}/TesseraConfigVersion.cmake DESTINATION ${package_folder})
  install(FILES ${made}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
