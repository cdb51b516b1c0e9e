# shellcheck shell=bash
# shellcheck disable=SC2054,SC2154 # QEMU's option lists contain commas; the scripts that source this file set `here`
# Builds QEMU's arguments for a guest: for vm/run, which runs a guest, and for vm/template, which makes the template of guests on virtual time.

# Size in MiB of the layer of a guest on virtual time: this repository, the programs under test, and the command. The size is fixed, because a
# template contains a disk of that size.
layer_mib=192

# machine KERNEL INITRD MEMORY CPUS RUN [WORD...]: sets $machine. The guest's output goes to files in RUN. WORDs are added to the kernel's command line.
machine() {
  local kernel=$1 initrd=$2 memory=$3 cpus=$4 run=$5
  # init_on_alloc=0: clearing all allocated memory costs 5 % of the emulation. norandmaps: QEMU 7.2 translates code again for each address at which a
  # program is loaded, so that a guest costs a quarter less without address space layout randomization.
  local arguments="quiet loglevel=4 panic=-1 oops=panic mitigations=off nokaslr norandmaps random.trust_cpu=on nowatchdog audit=0 rcupdate.rcu_expedited=1
    cryptomgr.notests init_on_alloc=0 ${*:6}"
  case $(architecture "$kernel") in
    arm64)
      arguments="console=ttyAMA0 $arguments"
      # neoverse-n1 has the features that Debian's kernels use, but no pointer authentication, which QEMU emulates slowly.
      machine=(-M virt,gic-version=3 -cpu neoverse-n1)
      ;;
    *)
      arguments="console=ttyS0 tsc=reliable no_timer_check lpj=4000000 $arguments"
      # -erms: QEMU emulates `rep movsb` byte by byte. Without the flag, kernel and C library copy words, and a guest costs a quarter less.
      # -cx16: QEMU before 8.0 leaves garbage in EFLAGS after cmpxchg16b. An interrupt at the next instruction saves EFLAGS, and the return from that
      # interrupt causes a double fault, which killed guests. Newer kernels need the instruction for the task and socket storage of BPF programs
      # (kmalloc_nolock()), and rarely use it otherwise.
      local cx16=off
      [ "$(printf '%s\n' 6.18 "${kernel##*/}" | sort -V | head -n 1)" != 6.18 ] || cx16=on
      machine=(-M q35,acpi=on,nvdimm=on,hpet=off,usb=off,sata=off,smbus=off,pit=on -cpu "max,la57=off,pmu=off,erms=off,cx16=$cx16"
        -device isa-debug-exit,iobase=0xf4,iosize=1)
      ;;
  esac
  machine+=(-smp "$cpus" -m "$memory" -nodefaults -no-user-config -display none -no-reboot
    -kernel "$kernel/vmlinux" -initrd "$initrd" -append "${arguments//$'\n'/ }"
    -serial "file:$run/console.log" -device virtio-rng-pci -device virtio-serial-pci)
}
# share TAG DIR OPTIONS: adds a directory of the host, which the guest's init mounts.
share() {
  machine+=(-fsdev "local,id=$1,path=${2//,/,,},security_model=none$3" -device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}
# port RUN NAME: adds a virtio port whose output goes to the file RUN/NAME. With a file, a slow reader on the host cannot block the guest.
port() {
  : > "$1/$2"
  machine+=(-chardev "file,id=$2,path=$1/$2" -device "virtserialport,chardev=$2,name=$2")
}

# virtual_machine KERNEL MEMORY CPUS RUN OUT [WORD...]: sets $machine for virtual time. The guest's clock counts instructions, and the guest reads
# nothing from the host after the start: the host's programs, the kernel's modules (vm/image) and the layer are persistent memory. The devices are
# always the same, because templates require it. OUT may be any directory.
virtual_machine() {
  local kernel=$1 memory=$2 cpus=$3 run=$4 out=$5 images image size
  images=$("$here/image" "$kernel") || return
  machine "$kernel" "$kernel/initrd-virtual.img" "$memory,slots=3,maxmem=16G" "$cpus" "$run" VM_LAYER=$((layer_mib * 2048)) "${@:6}"
  machine+=(-accel tcg,thread=single,tb-size=512 -icount shift=0,sleep=off -device pvpanic -action panic=pause)
  for image in $images "$run/layer.img"; do
    size=$(stat -L -c %s "$image")
    machine+=(-object "memory-backend-file,id=${image##*/},mem-path=$image,size=$size,share=on,readonly=on"
      -device "nvdimm,memdev=${image##*/},unarmed=on")
  done
  share out "$out" ,multidevs=remap
  for image in status stdout stderr; do port "$run" $image; done
}

# foreign_machine KERNEL MEMORY CPUS RUN OUT VIRTUAL [WORD...]: sets $machine for another architecture. The disks are the same as on virtual time. QEMU's
# `virt` has persistent memory only with UEFI, so the guest copies the disks into its memory at the start (vm/guest/init). VIRTUAL selects virtual time.
foreign_machine() {
  local kernel=$1 memory=$2 cpus=$3 run=$4 out=$5 images image n=0
  images=$("$here/image" "$kernel") || return
  { cat "$kernel/initrd.img"; (cd "$here/guest" && echo init | cpio -o -H newc --quiet); } > "$run/initrd.img"
  machine "$kernel" "$run/initrd.img" "$memory" "$cpus" "$run" VM_LAYER=$((layer_mib * 2048)) "${@:7}"
  if [ -n "$6" ]; then machine+=(-accel tcg,thread=single,tb-size=512 -icount shift=0,sleep=off)
  else machine+=(-accel tcg,thread=multi,tb-size=512)
  fi
  for image in $images "$run/layer.img"; do
    machine+=(-drive "if=none,id=disk$n,file=$image,format=raw,readonly=on" -device "virtio-blk-pci,drive=disk$n")
    n=$((n + 1))
  done
  share out "$out" ,multidevs=remap
  for image in status stdout stderr; do port "$run" $image; done
}
