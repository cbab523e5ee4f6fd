#!/bin/sh
# A corpus of English prose for the demo, made from Debian packages that are downloaded and unpacked but not installed.
#
#     tools/corpus.sh [FOLDER]        default data/corpus; one subfolder a source, many .txt files in each
#
# The same package versions give the same bytes. CACHE (default .cache/corpus) keeps the downloads, some 35 MB.
# A source whose package is missing, or can't be read here, is left out with a line; under 10 MB in all is a failure.
#
# Sources, and what their packages' copyright files say:
#   novels      r-cran-janeaustenr             Jane Austen's six novels; text in the public domain, package MIT
#   scripture   bible-kjv-text, bible-kjv      King James Bible; public domain, program GPL-2+
#   essays      anarchism                      An Anarchist FAQ; GPL-2+
#   dictionary  dict-gcide                     Webster 1913 and others, edited by GNU; GPL-2+
#   manual      perl-doc                       the Perl manual, prose only; GPL-1+ or Artistic
# No text is part of this repository. Redistributing what this makes means keeping to the licences above.
set -eu
export LC_ALL=C

out=${1:-data/corpus}
cache=${CACHE:-.cache/corpus}
here=$(cd "$(dirname "$0")" && pwd)/corpus
min_bytes=10000000
chunk_bytes=16384 # of a text file

say() { echo "corpus: $*" >&2; }
fail() { say "$*"; exit 1; }

# ---- packages -------------------------------------------------------------------------------------------------------

deb_of() { # the downloaded file of package $1
    for file in "$cache/debs/$1"_*.deb; do
        [ -f "$file" ] && echo "$file" && return 0
    done
    return 1
}

apt() { # apt-get without becoming another user: the cache need not be readable for one
    apt-get -q -o APT::Sandbox::User="$(id -un)" "$@" >"$cache/apt.log" 2>&1
}

apt_download() { (cd "$cache/debs" && cache=.. apt download "$1"); }

# Package lists of our own, for a machine whose lists are missing or old; needs no root.
use_own_lists() {
    [ ! -f "$work/apt.conf" ] || return 0
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
    cache_path=$(cd "$cache" && pwd)
    printf 'Dir::State::Lists "%s/apt/lists";\nDir::Cache "%s/apt";\n' "$cache_path" "$cache_path" >"$work/apt.conf"
    APT_CONFIG=$cache_path/work/apt.conf
    export APT_CONFIG
    say "reading package lists"
    apt update || true
}

fetch() { # makes sure package $1 is downloaded and unpacked; its folder is then $cache/unpacked/$1
    if ! deb_of "$1" >/dev/null; then
        apt_download "$1" || { use_own_lists && apt_download "$1"; } ||
            { say "package $1 can't be had: $(tail -n 1 "$cache/apt.log")"; return 1; }
    fi
    # A download cut off long ago would stay broken: check, and drop it.
    if ! dpkg-deb -x "$(deb_of "$1")" "$cache/unpacked/$1" 2>/dev/null; then
        rm -f "$(deb_of "$1")"
        say "package $1 was damaged and is removed; run this again"
        return 1
    fi
}

in_folder() { # awk program $2 over the files of folder $1 that find's further arguments choose, in order of their names
    folder=$1
    program=$2
    shift 2
    (cd "$folder" && find . "$@" | sort | xargs awk -f "$program")
}

split_into() { # paragraphs on standard input to text files of source $1; further awk settings after it
    source=$1
    shift
    mkdir -p "$partial/$source"
    awk -v folder="$partial/$source" -v size=$chunk_bytes "$@" -f "$here/split.awk"
}

# ---- sources: each writes $partial/<name>/*.txt or returns 1 --------------------------------------------------------

# The text lies in R's lazy-load data base: blocks of a 4-byte length and a zlib stream. gzip reads the deflate data
# behind a gzip header of ours, complains about the missing checksum, and the length tells whether all is well.
novels() {
    fetch r-cran-janeaustenr || return 1
    rdb=$cache/unpacked/r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb
    [ -f "$rdb" ] || { say "novels: $rdb is not there"; return 1; }
    od -An -v -tu1 "$rdb" | awk '{ # where a zlib header follows a length below 16 MB
        for (i = 1; i <= NF; i++) {
            n++
            if (b5 == 120 && $i == 156 && b1 == 0)
                print n + 1, (b2 * 256 + b3) * 256 + b4
            b1 = b2; b2 = b3; b3 = b4; b4 = b5; b5 = $i
        }
    }' >"$work/blocks"
    while read -r from length; do
        { printf '\037\213\010\0\0\0\0\0\0\003'; tail -c "+$from" "$rdb"; } | gzip -dc >"$work/block" 2>/dev/null || true
        [ "$(wc -c <"$work/block")" -eq "$length" ] || continue
        od -An -v -tu1 "$work/block" | awk -f "$here/rdata.awk" |
            awk '/^(CHAPTER|Chapter|VOLUME|Volume) / { print "\f" } { gsub(/_/, ""); print }'
        printf '\f\n'
    done <"$work/blocks" | awk -f "$here/join.awk" | split_into novels
}

scripture() {
    fetch bible-kjv-text && fetch bible-kjv || return 1
    reader=$cache/unpacked/bible-kjv/usr/bin/bible
    text=$cache/unpacked/bible-kjv-text/usr/lib
    libraries=
    if ! "$reader" -f -p "$text" Gen1:1 </dev/null >/dev/null 2>&1; then # it wants libreadline
        fetch libreadline8t64 2>/dev/null || fetch libreadline8 2>/dev/null || return 1
        libraries=$(find "$cache/unpacked" -name 'libreadline.so.8' -exec dirname {} \; | sed 1q)
    fi
    LD_LIBRARY_PATH=$libraries "$reader" -f -p "$text" Gen1:1-Rev22:21 </dev/null 2>/dev/null |
        awk '{ # "Ge1:1 In the beginning ...": a document a chapter
            chapter = $1
            sub(/:.*/, "", chapter)
            if (chapter != last)
                print "\f"
            last = chapter
            sub(/^[^ ]* */, "")
            print
        }' | split_into scripture -v pack=1
}

essays() {
    fetch anarchism || return 1
    in_folder "$cache/unpacked/anarchism/usr/share/doc/anarchism/html" "$here/html.awk" \
        -name 'sec*.html' -o -name 'append*.html' | split_into essays
}

dictionary() { # every seventh piece of the whole
    fetch dict-gcide || return 1
    gzip -dc <"$cache/unpacked/dict-gcide/usr/share/dictd/gcide.dict.dz" |
        awk '/^[^ \t]/ && bytes > 24000 { n++; bytes = 0 } { bytes += length($0) + 1 } n % 7 == 1' |
        awk -f "$here/dict.awk" | split_into dictionary -v pack=1
}

manual() {
    fetch perl-doc || return 1
    in_folder "$cache/unpacked/perl-doc/usr/share/perl" "$here/pod.awk" -name '*.pod' ! -name '*delta.pod' \
        ! -name perltoc.pod ! -name perluniprops.pod ! -name perlapi.pod ! -name perlintern.pod ! -name perlhist.pod |
        split_into manual
}

# ---- all together ---------------------------------------------------------------------------------------------------

bytes_in() { find "$1" -name '*.txt' -exec cat {} + | wc -c | tr -d ' '; }

describe() { # the line of SOURCES for source $1
    case $1 in
    novels) echo "Jane Austen's six novels. Public domain; package MIT.	r-cran-janeaustenr" ;;
    scripture) echo "The King James Bible. Public domain; program GPL-2+.	bible-kjv-text bible-kjv" ;;
    essays) echo "An Anarchist FAQ. GPL-2+.	anarchism" ;;
    dictionary) echo "GNU Collaborative International Dictionary of English, a part. GPL-2+.	dict-gcide" ;;
    manual) echo "The Perl manual, prose only. GPL-1+ or Artistic.	perl-doc" ;;
    esac
}

write_sources() {
    echo "Made by tools/corpus.sh from Debian packages. Each folder is one source."
    for source in $made; do
        described=$(describe "$source")
        echo
        echo "$source ($(bytes_in "$partial/$source") bytes): ${described%%	*}"
        for package in ${described##*	}; do
            dpkg-deb -f "$(deb_of "$package")" Package Version Homepage | sed 's/^/    /'
        done
    done
}

for tool in apt-get dpkg-deb gzip awk od; do
    command -v "$tool" >/dev/null || fail "no $tool here: this needs Debian or Ubuntu. Use your own text: TEXT=folder ./do demo"
done
if [ -f "$out/SOURCES" ]; then
    say "$out is there already ($(bytes_in "$out") bytes)"
    exit 0
fi
[ ! -e "$out" ] || fail "$out exists and was not made by this; remove it or name another folder"

partial=$out.partial
work=$cache/work
rm -rf "$partial" "$work" "$cache/unpacked"
mkdir -p "$partial" "$work" "$cache/debs" "$cache/unpacked"
made=
for source in novels scripture essays dictionary manual; do
    if "$source" && [ -d "$partial/$source" ] && [ "$(bytes_in "$partial/$source")" -gt 100000 ]; then
        made="$made $source"
        say "$source: $(bytes_in "$partial/$source") bytes"
    else
        rm -rf "${partial:?}/$source"
        say "$source: left out"
    fi
done
total=$(bytes_in "$partial")
[ "$total" -ge $min_bytes ] || fail "only $total bytes of text, $min_bytes are needed. Use your own text: TEXT=folder ./do demo"
write_sources >"$partial/SOURCES"
mv "$partial" "$out"
rm -rf "$work" "$cache/unpacked"
say "$total bytes in $out"
