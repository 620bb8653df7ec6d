# The Python module: build/python/tessera, for all versions of Python since 3.8. `cmake --install build --component python
# --prefix FOLDER` copies it to FOLDER/tessera. Call tessera_python() after the rooms are added.
option(TESSERA_PYTHON "Build the Python module (needs Python's headers)" OFF)

function(tessera_python)
  if(NOT TESSERA_PYTHON)
    return()
  endif()
  find_package(Python3 3.8 COMPONENTS Interpreter Development.Module)
  if(NOT Python3_FOUND OR NOT Python3_Development.Module_FOUND)
    message(FATAL_ERROR "TESSERA_PYTHON needs the headers of Python 3.8 or later. Install them (apt-get install "
                        "python3-dev), or name an interpreter that has them: -DPython3_EXECUTABLE=PATH")
  endif()
  set(folder ${PROJECT_BINARY_DIR}/python/tessera)
  set(sources ${PROJECT_SOURCE_DIR}/python/native)
  add_library(tessera_python MODULE ${sources}/glue.cc ${sources}/model.cc ${sources}/module.cc ${sources}/train.cc)
  target_compile_options(tessera_python PRIVATE -Wsign-conversion)
  # The stable ABI of Python 3.8.
  target_compile_definitions(tessera_python PRIVATE Py_LIMITED_API=0x03080000)
  target_include_directories(tessera_python SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  target_link_libraries(tessera_python PRIVATE tessera_api)
  set(symbols ${PROJECT_SOURCE_DIR}/cmake/python.map)
  target_link_options(tessera_python PRIVATE -Wl,--version-script=${symbols})
  set_target_properties(tessera_python PROPERTIES
    PREFIX "" OUTPUT_NAME _native SUFFIX .abi3.so LIBRARY_OUTPUT_DIRECTORY ${folder} LINK_DEPENDS ${symbols}
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/tessera ${PROJECT_SOURCE_DIR}/python/tessera/*.py
       ${PROJECT_SOURCE_DIR}/python/tessera/*.pyi ${PROJECT_SOURCE_DIR}/python/tessera/py.typed)
  set(copies)
  foreach(file ${files})
    set(source ${PROJECT_SOURCE_DIR}/python/tessera/${file})
    add_custom_command(OUTPUT ${folder}/${file} COMMAND ${CMAKE_COMMAND} -E copy ${source} ${folder}/${file}
                       DEPENDS ${source} VERBATIM)
    list(APPEND copies ${folder}/${file})
  endforeach()
  add_custom_target(tessera_python_files ALL DEPENDS ${copies})
  add_dependencies(tessera_python tessera_python_files)

  install(TARGETS tessera_python LIBRARY DESTINATION tessera COMPONENT python EXCLUDE_FROM_ALL)
  install(FILES ${copies} DESTINATION tessera COMPONENT python EXCLUDE_FROM_ALL)
endfunction()
