#!/usr/bin/env bash
# Tests the packages of a folder (tools/package.sh) in root file systems of Debian and Ubuntu, which debootstrap makes:
#   tools/package_test.sh FOLDER [DISTRIBUTION...]
# A distribution is bullseye, bookworm, trixie (Debian 11, 12, 13), bionic, jammy or noble (Ubuntu 18.04, 22.04, 24.04);
# by default all. In each one, a user without root unpacks the .tar.gz and fine-tunes the model of recipes/quickstart,
# and root installs the .deb. Where the distribution has Python, pip and a C++ compiler, the wheel and the library are
# tested, too. Needs root and debootstrap.
#   tools/package_test.sh --container
# runs the steps of tools/container/Dockerfile in two such root file systems of Debian 12, with the files of the last
# commit, and checks that tessera.def has the same steps.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: tools/package_test.sh FOLDER [DISTRIBUTION...] | --container" >&2; exit 2; }
folder=$([ "$1" = --container ] || { cd "$1" && pwd; })
cd "$(dirname "$0")/.."
roots=$PWD/build-package/roots
mkdir -p "$roots"

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/user LANG=C.UTF-8 "$@"; }
as_user() { in_root su -s /bin/bash user -c "cd && $1"; }

# make_root DISTRIBUTION ROOT
make_root() {
  local distribution=$1 mirror components script
  case $distribution in
    bionic | jammy | noble) mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
    *) mirror=http://deb.debian.org/debian components=main ;;
  esac
  script=/usr/share/debootstrap/scripts/$distribution
  [ -e "$script" ] || script=$([[ $mirror == *ubuntu* ]] && echo /usr/share/debootstrap/scripts/gutsy || echo /usr/share/debootstrap/scripts/sid)
  [ ! -e "$2/.made" ] || return 0
  rm -rf "$2"
  debootstrap --variant=minbase --no-check-gpg --components=$components "$distribution" "$2" "$mirror" "$script" >"$2.log" 2>&1 ||
    { echo "$distribution: debootstrap failed; its output is in $2.log"; exit 1; }
  chroot "$2" useradd -m user
  cp /etc/resolv.conf "$2/etc/resolv.conf"
  mkdir -p "$2/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/* "$2/usr/local/share/ca-certificates/" 2>/dev/null || true
  touch "$2/.made"
}

if [ "$1" = --container ]; then
  # The commands of RUN in stage $1 of the Dockerfile, each in one line.
  steps() { sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' tools/container/Dockerfile | awk -v stage="$1" '/^FROM/ { n++ } n == stage && sub(/^RUN /, "")'; }
  # shellcheck disable=SC2016  # the text of an argument of the Dockerfile
  normal() { tr -s ' \n' ' ' | sed 's/ && / /g; s/ \${OPTIONS}//'; }
  post=$(sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' -e '/^%post/,/^%runscript/!d' tools/container/tessera.def | normal)
  [[ "$post" == *"$(steps 1 | normal)"* ]] || { echo "the steps of tessera.def and of the Dockerfile differ"; exit 1; }
  for stage in 1 2; do
    root=$roots/container-$stage
    rm -rf "$root"
    make_root bookworm "$root"
    mount -t proc proc "$root/proc"
    trap 'umount "$root/proc"' EXIT
    if [ $stage = 1 ]; then mkdir "$root/src" && git archive HEAD | tar -x -C "$root/src"; else cp -R "$roots/container-1/packages" "$root/packages"; fi
    steps $stage | while read -r step; do
      in_root PIP_CERT=/etc/ssl/certs/ca-certificates.crt OPTIONS= bash -ec "$step" >>"$root.log" 2>&1 </dev/null || { tail -n 20 "$root.log"; exit 1; }
    done
    umount "$root/proc"
    trap - EXIT
  done
  rm -rf "$root/home/user/"* && mkdir "$root/home/user/recipes" && cp -R recipes/quickstart "$root/home/user/recipes"
  in_root chown -R user /home/user
  as_user 'tessera train recipes/quickstart/finetune.toml --output-dir run 2>&1' | grep '^| *2.00'
  exit
fi

shift
[ $# -gt 0 ] || set -- bullseye bookworm trixie bionic jammy noble
for distribution in "$@"; do
  root=$roots/$distribution
  make_root "$distribution" "$root"
  mount -t proc proc "$root/proc"
  trap 'umount "$root/proc"' EXIT
  rm -rf "$root/home/user/"* "$root"/tmp/*
  cp "$folder"/tessera-[0-9]*.tar.gz "$folder"/tessera_[0-9]*.deb "$folder"/tessera_lm-*.whl "$root/home/user"
  mkdir "$root/home/user/recipes" && cp -R recipes/quickstart "$root/home/user/recipes"
  chroot "$root" chown -R user /home/user
  glibc=$(in_root ldd --version | sed -n '1s/.* //p')
  start=$(date +%s.%N)
  as_user 'tar xzf tessera-*.tar.gz && mv tessera-*/ tessera'
  as_user 'tessera/bin/tessera train recipes/quickstart/finetune.toml --output-dir run >log 2>&1' || { cat "$root/home/user/log"; exit 1; }
  as_user 'tessera/bin/tessera doctor' | grep -q 'blas threads *1$'  # the static library is found
  took=$(echo "$(date +%s.%N) - $start" | bc)
  as_user 'tessera/bin/tessera train recipes/quickstart/finetune.toml --max-steps 3 --nproc 2 --output-dir ranks >log2 2>&1' || { cat "$root/home/user/log2"; exit 1; }
  scores=$(in_root sed -n 's/^| *2.00 |/2.00 |/p' /home/user/log)
  set_used=$(in_root sed -n 's/.*"instruction_set": *"\([^"]*\)".*/\1/p' /home/user/run/summary.json)
  in_root sh -c 'dpkg -i /home/user/tessera_*.deb' >/dev/null
  version=$(as_user 'tessera --version')
  in_root test -s /usr/share/man/man1/tessera.1
  in_root test -s /usr/share/bash-completion/completions/tessera
  in_root dpkg -r tessera >/dev/null
  consumers=""
  if [ "$distribution" != bionic ]; then  # whose Python and compiler are too old
    if [ ! -e "$root/.has_tools" ]; then
      in_root apt-get update >"$root.log" 2>&1
      in_root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv g++ cmake make >>"$root.log" 2>&1
      touch "$root/.has_tools"
    fi
    as_user 'python3 -m venv env && env/bin/pip install --no-index --quiet tessera_lm-*.whl && env/bin/tessera --version' >/dev/null
    as_user 'cat >train.py' <<'PYTHON'
import tessera
steps = []
result = tessera.train(model="recipes/quickstart/model", dataset="recipes/quickstart/train.json", max_steps=3,
                       output_dir="from-python", on_step=steps.append)
assert result.finished and len(steps) == 3, (result, steps)
PYTHON
    as_user 'env/bin/python train.py'
    consumers="; wheel with Python $(as_user 'env/bin/python -c "import platform; print(platform.python_version())"')"
    gcc=$(in_root g++ -dumpfullversion)
    if [ "${gcc%%.*}" -ge 11 ]; then
      as_user 'cmake -S tessera/share/doc/tessera/examples -B examples -DCMAKE_PREFIX_PATH=/home/user/tessera >/dev/null && make -C examples >/dev/null'
      as_user './examples/plan bloom-560m >/dev/null'
      consumers+="; examples with GCC $gcc"
    fi
  fi
  umount "$root/proc"
  trap - EXIT
  echo "$distribution, glibc $glibc: $version; tar.gz unpacked and trained in ${took%.*} s with $set_used: $scores$consumers"
done
