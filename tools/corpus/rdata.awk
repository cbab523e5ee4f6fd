# Bytes of an R serialisation in (decimal, from od -An -v -tu1), its character strings out, one a line.
# A string is a header word (type 9; ASCII or UTF-8 flag), its length, and its bytes; all words are big-endian.

BEGIN {
    for (i = 1; i < 256; i++)
        chr[i] = sprintf("%c", i)
    ASCII = 262153 # 0x00040009
    UTF8 = 32777   # 0x00008009
}

{
    for (i = 1; i <= NF; i++) {
        if (left > 0) {
            s = s chr[$i]
            if (--left == 0) {
                print s
                s = ""
                word = 0
            }
        } else if (n_length > 0) {
            len = len * 256 + $i
            if (--n_length == 0) {
                left = len
                word = 0
                if (len == 0)
                    print ""
            }
        } else {
            word = (word % 16777216) * 256 + $i
            if (word == ASCII || word == UTF8) {
                n_length = 4
                len = 0
            }
        }
    }
}
