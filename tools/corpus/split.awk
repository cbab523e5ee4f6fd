# Paragraphs in, one a line; files of about `size` bytes out: folder/00000.txt, folder/00001.txt, ...
# A line with only a form feed ends a document, and no file holds parts of two documents unless `pack` is 1.
# Longer documents are cut between paragraphs. Many files rather than few: a validation split takes whole files.
# Of every `every` files the first is kept (default all).

function finish()
{
    if (bytes > 200) {
        if (n_seen++ % every == 0) {
            file = sprintf("%s/%05d.txt", folder, n++)
            printf "%s", text > file
            close(file)
        }
    }
    text = ""
    bytes = 0
}

BEGIN { if (!every) every = 1 }

/^\f/ {
    if (!pack || bytes >= size)
        finish()
    next
}

{
    gsub(/[ \t\r]+/, " ")
    sub(/^ /, "")
    sub(/ $/, "")
    if ($0 == "")
        next
    text = text $0 "\n\n"
    bytes += length($0) + 2
    if (!pack && bytes >= size)
        finish()
}

END { finish() }
