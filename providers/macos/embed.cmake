# cmake -DOUT=embedded.c -DFILES=a,b,... -P embed.cmake - C data of the files that this build carries, in the order of
# enum macos_file (files.h). Bytes and no text: a C compiler need not take a string of more than 4095 characters.
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(rows "")
set(number 0)
foreach(path ${files})
  get_filename_component(name ${path} NAME)
  file(READ ${path} bytes HEX)
  string(LENGTH "${bytes}" size)
  math(EXPR size "${size} / 2")
  string(REGEX REPLACE "(................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "static const unsigned char bytes_${number}[] = { /* ${name} */\n${bytes}\n0 };\n\n")
  string(APPEND rows "    { \"${name}\", (const char *)bytes_${number}, ${size} },\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT}.new
  "/* Made by providers/macos/embed.cmake. */\n#include \"providers/macos/files.h\"\n\n${arrays}"
  "const struct embedded macos_files[MACOS_FILE_COUNT] = {\n${rows}};\n")
file(RENAME ${OUT}.new ${OUT})
