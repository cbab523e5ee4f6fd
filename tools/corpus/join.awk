# Wrapped text in, one paragraph a line out. Blank lines end paragraphs; a form feed line passes through.

function finish() { if (text != "") print text; text = "" }

/^\f/ { finish(); print "\f"; next }
/^[ \t]*$/ { finish(); next }
{ text = text (text == "" ? "" : " ") $0 }
END { finish() }
