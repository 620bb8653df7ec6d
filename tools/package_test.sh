#!/usr/bin/env bash
# Tests the packages of a folder (tools/package.sh) in root file systems of Debian and Ubuntu, which debootstrap makes:
#   tools/package_test.sh FOLDER [DISTRIBUTION...]
# A distribution is bullseye, bookworm, trixie (Debian 11, 12, 13), bionic, jammy or noble (Ubuntu 18.04, 22.04, 24.04);
# by default all. In each one, a user without root unpacks the .tar.gz and fine-tunes the model of recipes/quickstart,
# and root installs the .deb. Where the distribution has Python, pip and a C++ compiler, the wheel and the library are
# tested, too. Needs root and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye bookworm trixie bionic jammy noble
roots=$PWD/build-package/roots
mkdir -p "$roots"

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/user LANG=C.UTF-8 "$@"; }
as_user() { in_root su -s /bin/bash user -c "cd && $1"; }

for distribution in "$@"; do
  root=$roots/$distribution
  case $distribution in
    bionic | jammy | noble) mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
    *) mirror=http://deb.debian.org/debian components=main ;;
  esac
  script=/usr/share/debootstrap/scripts/$distribution
  [ -e "$script" ] || script=$([[ $mirror == *ubuntu* ]] && echo /usr/share/debootstrap/scripts/gutsy || echo /usr/share/debootstrap/scripts/sid)
  if [ ! -e "$root/.made" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase --no-check-gpg --components=$components "$distribution" "$root" "$mirror" "$script" >"$root.log" 2>&1 ||
      { echo "$distribution: debootstrap failed; its output is in $root.log"; exit 1; }
    chroot "$root" useradd -m user
    touch "$root/.made"
  fi
  rm -rf "$root/home/user/"* "$root"/tmp/*
  cp "$folder"/tessera-[0-9]*.tar.gz "$folder"/tessera_[0-9]*.deb "$folder"/tessera_lm-*.whl "$root/home/user"
  mkdir "$root/home/user/recipes" && cp -R recipes/quickstart "$root/home/user/recipes"
  chroot "$root" chown -R user /home/user
  glibc=$(in_root ldd --version | sed -n '1s/.* //p')
  start=$(date +%s.%N)
  as_user 'tar xzf tessera-*.tar.gz && mv tessera-*/ tessera'
  as_user 'tessera/bin/tessera train recipes/quickstart/finetune.toml --output-dir run >log 2>&1' || { cat "$root/home/user/log"; exit 1; }
  took=$(echo "$(date +%s.%N) - $start" | bc)
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
      cp /etc/resolv.conf "$root/etc/resolv.conf"
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
  echo "$distribution, glibc $glibc: $version; tar.gz unpacked and trained in ${took%.*} s with $set_used: $scores$consumers"
done
