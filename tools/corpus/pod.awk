# Perl's POD in, one paragraph a line out: the prose only. Paragraphs that start with a space are code.

function plain(s)
{
    gsub(/E<lt>/, "\001", s)
    gsub(/E<gt>/, "\002", s)
    gsub(/E<sol>/, "/", s)
    gsub(/E<verbar>/, "|", s)
    gsub(/[XZ]<[^<>]*>/, "", s)
    while (match(s, /L<[^<>|]*\|[^<>]*>/)) { # L<shown|target>
        link = substr(s, RSTART + 2, RLENGTH - 3)
        sub(/\|.*/, "", link)
        s = substr(s, 1, RSTART - 1) link substr(s, RSTART + RLENGTH)
    }
    while (match(s, /[BCEFILS]<<+ .* >+>/)) {
        inner = substr(s, RSTART + 1, RLENGTH - 1)
        gsub(/^<+ | >+$/, "", inner)
        gsub(/</, "\001", inner)
        gsub(/>/, "\002", inner)
        s = substr(s, 1, RSTART - 1) inner substr(s, RSTART + RLENGTH)
    }
    while (match(s, /[BCEFILS]<[^<>]*>/))
        s = substr(s, 1, RSTART - 1) substr(s, RSTART + 2, RLENGTH - 3) substr(s, RSTART + RLENGTH)
    gsub(/\001/, "<", s)
    gsub(/\002/, ">", s)
    return s
}

BEGIN { RS = ""; FS = "\n" }

FNR == 1 && NR > 1 { print "\f" }
/^=(begin|for|encoding|over|back|pod|cut)/ { hidden = /^=begin/; next }
/^=end/ { hidden = 0; next }
hidden || /^[ \t]/ { next }

{
    sub(/^=(head[1-6]|item)[ \t]*/, "")
    gsub(/[ \t\n]+/, " ")
    s = plain($0)
    # Signatures, option letters and tables of symbols say nothing without their context.
    letters = s
    gsub(/[^a-zA-Z ]/, "", letters)
    if (length(s) >= 20 && length(letters) >= 0.85 * length(s))
        print s
}
