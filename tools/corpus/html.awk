# HTML in, one paragraph a line out. Needs clean, simple pages: no scripts, no preformatted text.
# Records end at "<", so each is "tag>text".

function finish()
{
    gsub(/[ \t\r\n]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    gsub(/&nbsp;/, " ", text)
    gsub(/&quot;/, "\"", text)
    gsub(/&lt;/, "<", text)
    gsub(/&gt;/, ">", text)
    gsub(/&amp;/, "\\&", text)
    if (text != "")
        print text
    text = ""
}

BEGIN { RS = "<" }

FNR == 1 { finish(); if (NR > 1) print "\f"; text = $0; skip = 0; next }

# "a < b": not a tag.
!/^[a-zA-Z\/!?]/ { if (!skip) text = text "<" $0; next }

{
    end = index($0, ">")
    if (end == 0)
        next
    tag = tolower(substr($0, 1, end - 1))
    sub(/[ \t\r\n].*/, "", tag)
    if (tag == "head")
        skip = 1
    else if (tag == "/head")
        skip = 0
    if (tag ~ /^\/?(p|div|h[1-6]|li|ul|ol|blockquote|table|tr|td|th|title|body|html|center|hr\/?|dt|dd)$/)
        finish()
    else if (tag ~ /^br\/?$/)
        text = text " "
    if (!skip)
        text = text substr($0, end + 1)
}

END { finish() }
