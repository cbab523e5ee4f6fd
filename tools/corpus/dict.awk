# The Collaborative International Dictionary of English (dictd's text form) in, one paragraph a line out, a form feed
# after every entry. Leaves out pronunciations, etymologies and source marks; keeps definitions and quotations.

function plain(s,    letter)
{
    sub(/ *\\[^\\]*\\[^,.;]*,/, ",", s)   # headword \Head"word\ (pronunciation), n.
    gsub(/\\[^\\]*\\/, "", s)
    gsub(/ *\[[A-Z]\.\]/, "", s)          # [R.]: rare
    while (match(s, /\[[^a-zA-Z\]]?[a-zA-Z][^a-zA-Z\]]?\]/)) { # caf['e]
        letter = substr(s, RSTART, RLENGTH)
        gsub(/[^a-zA-Z]/, "", letter)
        s = substr(s, 1, RSTART - 1) letter substr(s, RSTART + RLENGTH)
    }
    while (gsub(/ *\[[^][]*\]/, "", s))
        ;
    gsub(/[{}]/, "", s)
    gsub(/\222/, "'", s)                 # a few stray bytes of another encoding
    gsub(/[\200-\377]/, "", s)
    gsub(/ +,/, ",", s)
    return s
}

function finish()
{
    gsub(/[ \t]+/, " ", text)
    text = plain(text)
    if (text ~ /[a-z][a-z] .*[a-z][a-z]/)
        print text
    text = ""
}

/^[^ \t]/ { finish(); print "\f" }
/^[ \t]*$/ { finish(); next }
{ text = text " " $0 }
END { finish() }
