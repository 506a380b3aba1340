# cmake -DOUT=embedded.c -DHEADER=a/b.h -DARRAY=name[COUNT] -DFILES=a,b,... -P embed.cmake - C data of the files that
# this build carries: ARRAY, as HEADER declares it, of struct embedded (embedded.h). Bytes and no text: a C compiler
# need not take a string of more than 4095 characters.
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
  "/* Made by providers/embed.cmake. */\n#include \"${HEADER}\"\n\n${arrays}"
  "const struct embedded ${ARRAY} = {\n${rows}};\n")
file(RENAME ${OUT}.new ${OUT})
