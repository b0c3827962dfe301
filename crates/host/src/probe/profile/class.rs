//! What kind of work a symbol of the kernel does, by its name: one table.
//!
//! A profile has hundreds of symbols, and the question is often of a dozen kinds: what does copying cost, what locking. The table
//! is read from the top, and the first pattern that fits decides; so a copy comes before the protocol it is part of. Names are those of
//! Linux 5.10 to 6.18 on x86-64, arm64 and riscv64. What the compiler hangs on (`.isra.0`, `.cold`) is not part of a name.
//!
//! User mode is one class, whatever it does: that classes of the kernel add up to the kernel's time is what they are for.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Moving bytes of payload.
    Copy,
    /// Summing them up.
    Checksum,
    /// Pages, slabs, and giving them back.
    Allocation,
    /// Taking locks and waiting for them.
    Locking,
    /// The soft interrupt itself, and NAPI.
    Softirq,
    /// The NIC's driver, and the device's queues.
    Driver,
    /// Deciding who runs, waking, sleeping, timers.
    Scheduler,
    /// The way into the kernel and out of it, and what a descriptor is.
    Syscall,
    /// TCP.
    Tcp,
    /// IP, routes, neighbours, filters on packets.
    Ip,
    /// Sockets of any protocol, UDP too, and epoll.
    Socket,
    /// The kernel's packet buffers.
    Skb,
    /// Files, the page cache, pipes.
    Filesystem,
    /// Hardware interrupts.
    Interrupt,
    /// Nothing to do.
    Idle,
    /// User mode.
    User,
    /// None of the others.
    Other,
}

impl Class {
    /// As the text and JSON have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Checksum => "checksum",
            Self::Allocation => "allocation",
            Self::Locking => "locking",
            Self::Softirq => "softirq",
            Self::Driver => "driver",
            Self::Scheduler => "scheduler",
            Self::Syscall => "syscall",
            Self::Tcp => "tcp",
            Self::Ip => "ip",
            Self::Socket => "socket",
            Self::Skb => "skb",
            Self::Filesystem => "filesystem",
            Self::Interrupt => "interrupt",
            Self::Idle => "idle",
            Self::User => "user",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a name is recognised: words between single blanks.
#[derive(Debug, Clone, Copy)]
enum By {
    /// It is one of these.
    Names(&'static str),
    /// It begins with one of these.
    Starts(&'static str),
    /// One of these is in it.
    Has(&'static str),
}

impl By {
    fn fits(self, name: &str) -> bool {
        match self {
            Self::Names(names) => names.split(' ').any(|known| known == name),
            Self::Starts(starts) => starts.split(' ').any(|start| name.starts_with(start)),
            Self::Has(parts) => parts.split(' ').any(|part| name.contains(part)),
        }
    }
}

/// Patterns, the class, and why.
const TABLE: &[(By, Class, &str)] = &[
    (
        By::Has("safe_halt idle_enter mwait_idle"),
        Class::Idle,
        "halting, by whatever way a CPU or its hypervisor has",
    ),
    (
        By::Names(
            "default_idle default_idle_call arch_cpu_idle cpu_do_idle do_idle cpu_startup_entry intel_idle intel_idle_ibrs \
         intel_idle_irq intel_idle_xstate acpi_idle_do_entry acpi_idle_enter_bm poll_idle cpuidle_enter \
         cpuidle_enter_state cpuidle_idle_call wait_for_interrupt sbi_cpuidle_enter_state psci_cpu_suspend_enter \
         acpi_processor_ffh_cstate_enter tick_nohz_idle_enter tick_nohz_idle_exit menu_select haltpoll_select teo_select",
        ),
        Class::Idle,
        "tools/perf/util/symbol.c symbol__is_idle, and the governors that choose how deep to sleep",
    ),
    (
        By::Has(
            "copy_to_nontemporal copy_from_nontemporal copy_user_nocache copy_from_iter_nocache copy_from_iter_flushcache check_object_size",
        ),
        Class::Copy,
        "copies past the caches, by whatever name a kernel has for them; the check of what is copied (mm/usercopy.c)",
    ),
    (
        By::Has("csum_and_copy copy_and_csum csum_partial_copy"),
        Class::Copy,
        "copying that sums as it goes: without the sum it would be a copy all the same",
    ),
    (
        By::Names(
            "csum_partial csum_partial_ext do_csum ip_fast_csum csum_ipv6_magic ip_compute_csum __skb_checksum skb_checksum \
         __skb_checksum_complete __skb_checksum_complete_head skb_checksum_help skb_checksum_trimmed csum_tcpudp_nofold \
         skb_copy_and_csum_bits csum_block_add_ext __skb_gro_checksum_complete",
        ),
        Class::Checksum,
        "lib/checksum.c and its versions by architecture; what calls it in net/core/skbuff.c",
    ),
    (By::Starts("crc32 crc_t10dif __crc32"), Class::Checksum, "of SCTP and of filesystems"),
    (
        By::Starts(
            "_copy_to_iter _copy_from_iter copy_to_iter copy_from_iter _copy_mc_to_iter copy_page_to_iter copy_page_from_iter \
         copy_folio_from_iter copy_user_ copy_mc_ __memcpy memcpy __memmove memmove __pi_memcpy __pi_memmove \
         rep_movs_alternative copyout copyin __copy_user __arch_copy_ fallback_scalar_usercopy __asm_copy_ \
         __asm_vector_usercopy asm_vector_usercopy enter_vector_usercopy raw_copy_ __copy_to_user __copy_from_user \
         _copy_to_user _copy_from_user _inline_copy_ simple_copy_to_iter copy_page copy_highpage csum_and_copy \
         __skb_datagram_iter skb_copy_datagram skb_copy_bits skb_store_bits memcpy_to memcpy_from",
        ),
        Class::Copy,
        "lib/iov_iter.c; arch/x86/lib/copy_user_64.S and copy_mc_64.S; arch/arm64/lib/copy_to_user.S; arch/riscv/lib/uaccess.S and \
         uaccess_vector.S; the loops over pieces in net/core/datagram.c, into which the copy itself is inlined",
    ),
    (
        By::Names(
            "zero_iter iov_iter_zero clear_user_rep_good rep_stos_alternative __arch_clear_user __clear_user read_iter_zero",
        ),
        Class::Copy,
        "zeroing a user's buffer: a copy without a source",
    ),
    (
        By::Names(
            "clear_page_rep clear_page_erms clear_page_orig clear_page clear_huge_page clear_highpage kernel_init_pages \
         get_page_from_freelist rmqueue rmqueue_bulk free_pcppages_bulk ___slab_alloc __slab_alloc __slab_free \
         __build_skb napi_build_skb put_cpu_partial page_frag_free page_frag_alloc_align __free_frag folio_put \
         __folio_put free_tail_page_prepare kfree kvfree kvmalloc_node __rmqueue_pcplist skb_page_frag_refill \
         sk_page_frag_refill release_pages free_large_kmalloc",
        ),
        Class::Allocation,
        "mm/page_alloc.c and mm/slub.c; clearing of fresh pages",
    ),
    (
        By::Starts(
            "kmem_cache_ __kmalloc kmalloc_ __kmem_cache alloc_pages __alloc_pages __alloc_frozen alloc_frozen __free_pages \
         free_unref free_pages free_frozen free_one_page __page_frag page_pool_ __page_pool kmalloc_reserve mod_objcg \
         obj_cgroup_ refill_obj_stock drain_obj_stock __memcg_slab memcg_ __memcg_ try_charge_memcg alloc_skb __alloc_skb \
         skb_free_head skb_kfree_head kfree_skbmem __put_partials new_slab allocate_slab free_to_partial mem_cgroup_ \
         slab_ __slab_ alloc_from_pcs __pcs_replace free_to_pcs",
        ),
        Class::Allocation,
        "the allocators, their accounting to cgroups, page pools of drivers, and the allocating part of an skb",
    ),
    (
        By::Has(
            "spin_lock spin_unlock spin_trylock mutex_lock mutex_unlock mutex_trylock rwsem queued_read queued_write \
         qspinlock",
        ),
        Class::Locking,
        "kernel/locking: by name, in all their variants. With a timer for a sampler, what ran with interrupts off is charged to \
         _raw_spin_unlock_irqrestore, which allows them again",
    ),
    (
        By::Starts(
            "_raw_read_ _raw_write_ native_queued pv_queued __pv_queued osq_ down_read down_write up_read up_write futex_ \
         __futex do_futex rcu_ __rcu_ lock_sock_nested release_sock __lock_sock __release_sock rt_mutex rt_spin \
         percpu_counter_ lockref_ refcount_",
        ),
        Class::Locking,
        "the same in other words, the lock of a socket, RCU, and shared counts",
    ),
    (
        By::Names(
            "__do_softirq handle_softirqs do_softirq __do_softirq_own_stack do_softirq_own_stack run_ksoftirqd raise_softirq \
         __raise_softirq_irqoff raise_softirq_irqoff __local_bh_enable_ip __local_bh_disable_ip __irq_exit_rcu \
         irq_exit_rcu irq_exit net_rx_action net_tx_action __napi_poll napi_poll process_backlog napi_complete_done \
         napi_schedule_prep __napi_schedule enqueue_to_backlog netif_rx netif_rx_internal __netif_rx napi_threaded_poll \
         napi_threaded_poll_loop net_rps_action_and_irq_enable ksoftirqd busy_poll_stop napi_busy_loop \
         tasklet_action_common",
        ),
        Class::Softirq,
        "kernel/softirq.c, and NAPI in net/core/dev.c",
    ),
    (
        By::Names(
            "common_interrupt __common_interrupt asm_common_interrupt handle_irq_event handle_edge_irq handle_fasteoi_irq \
         handle_level_irq handle_percpu_devid_irq generic_handle_domain_irq generic_handle_irq irq_enter_rcu irq_enter \
         __handle_irq_event_percpu gic_handle_irq el1_interrupt el0_interrupt el1h_64_irq el1h_64_irq_handler \
         handle_riscv_irq do_irq riscv_intc_irq native_apic_msr_eoi apic_eoi restore_regs_and_return_to_kernel \
         generic_smp_call_function_single_interrupt __flush_smp_call_function_queue",
        ),
        Class::Interrupt,
        "kernel/irq and the entries by architecture",
    ),
    (
        By::Starts("irqentry_ sysvec_ __sysvec_ asm_sysvec_ irq_work_ vring_interrupt"),
        Class::Interrupt,
        "vectors of x86",
    ),
    (
        By::Names(
            "syscall_return_via_sysret entry_SYSCALL_64 entry_SYSCALL_64_after_hwframe entry_SYSCALL_64_safe_stack \
         do_syscall_64 x64_sys_call syscall_exit_to_user_mode syscall_exit_to_user_mode_prepare \
         syscall_enter_from_user_mode exit_to_user_mode_loop exit_to_user_mode_prepare syscall_trace_enter el0_svc \
         el0_svc_common do_el0_svc el0t_64_sync el0t_64_sync_handler invoke_syscall handle_exception do_trap_ecall_u \
         ret_from_exception fdget fdget_pos __fdget __fget_light __fget_files fput __fput sockfd_lookup_light import_ubuf \
         import_single_range import_iovec fpregs_assert_state_consistent switch_fpu_return",
        ),
        Class::Syscall,
        "entry code by architecture, kernel/entry/common.c, and what a descriptor is looked up by",
    ),
    (
        By::Starts(
            "__x64_sys_ __se_sys_ __do_sys_ __arm64_sys_ __riscv_sys_ ksys_ __sys_ __audit_ audit_ security_ apparmor_ \
         selinux_",
        ),
        Class::Syscall,
        "bodies of system calls, and the security modules every one of them asks",
    ),
    (
        By::Starts(
            "veth_ virtnet_ virtqueue_ vring_ detach_buf_split loopback_ tun_ tap_ xmit_one dev_hard_start_xmit mlx5 ixgbe_ \
         i40e_ ice_ igb_ bnxt_ ena_ gve_ e1000 r8169 rtl8169 via_velocity velocity_",
        ),
        Class::Driver,
        "drivers that are often built in, so that no module tells them apart",
    ),
    (
        By::Starts(
            "__dev_queue_xmit __dev_xmit_skb sch_direct_xmit __qdisc_run qdisc_ pfifo_ fq_ noqueue_ tbf_ netdev_ dql_ \
         validate_xmit_ netif_ dev_queue_xmit dma_ iommu_ __iommu swiotlb_",
        ),
        Class::Driver,
        "the device's queues between IP and driver, and mapping for DMA",
    ),
    (
        By::Names(
            "napi_gro_receive dev_gro_receive gro_receive_skb gro_pull_from_frag0 napi_gro_frags gro_complete \
         napi_gro_complete gro_normal_list __gro_flush",
        ),
        Class::Driver,
        "joining what the NIC received, on its way up",
    ),
    (
        By::Names(
            "schedule __schedule schedule_timeout preempt_schedule preempt_schedule_common preempt_schedule_irq \
         finish_task_switch __switch_to __switch_to_asm context_switch try_to_wake_up default_wake_function \
         autoremove_wake_function woken_wake_function pick_next_task pick_eevdf pick_task_fair select_task_rq_fair \
         resched_curr ttwu_do_activate ttwu_queue_wakelist switch_mm_irqs_off prepare_task_switch yield_task_fair \
         do_sched_yield prepare_to_wait prepare_to_wait_exclusive finish_wait wait_woken add_wait_queue remove_wait_queue \
         ep_autoremove_wake_function nohz_run_idle_balance select_idle_sibling available_idle_cpu clock_was_set ktime_get \
         ktime_get_ts64 read_tsc kvm_clock_get_cycles pvclock_clocksource_read_nowd tick_nohz_next_event \
         nohz_balancer_kick",
        ),
        Class::Scheduler,
        "kernel/sched, waiting and waking, and the clocks they read",
    ),
    (
        By::Starts(
            "update_curr update_load update_rq update_min update_se update_entity update_cfs update_process_times \
         enqueue_task dequeue_task enqueue_entity dequeue_entit put_prev_ set_next_ place_entity psi_ sched_ __wake_up \
         wake_up_ task_tick_ scheduler_tick sched_tick hrtimer_ __hrtimer timerqueue_ tick_ __run_timers run_timer \
         mod_timer __mod_timer add_timer timer_delete del_timer lock_timer_base calc_wheel_index get_next_timer reweight_ \
         avg_vruntime check_preempt wakeup_preempt cpuacct_ native_smp_send_reschedule newidle_balance sched_balance \
         load_balance migrate_ set_task_cpu nanosleep do_nanosleep clockevents_ raw_spin_rq call_function_single_prep",
        ),
        Class::Scheduler,
        "the same by what names of kernel/sched and kernel/time begin with",
    ),
    (
        By::Starts(
            "tcp_ __tcp_ bbr_ cubictcp_ bictcp_ dctcp_ mptcp_ inet_csk_ inet_send_prepare tcp4_ tcp6_",
        ),
        Class::Tcp,
        "net/ipv4/tcp*.c and congestion control",
    ),
    (
        By::Starts(
            "ip_ __ip_ ip6_ __ip6_ ipv6_ ipv4_ ip4_ fib_ fib6_ __fib dst_ rt_ rt6_ neigh_ __neigh arp_ nf_ __nf_ nft_ ipt_ \
         xt_ iptable_ icmp_ inet_addr __netif_receive_skb netif_receive_skb ip_rcv ip6_rcv raw_local_deliver ipt_do_table \
         bpf_ ___bpf sk_filter",
        ),
        Class::Ip,
        "net/ipv4, net/ipv6, netfilter, and handing a packet up by its protocol",
    ),
    (
        By::Starts(
            "sock_ __sock_ sk_ __sk_ inet_ __inet inet6_ udp_ __udp udp6_ udpv6_ udp4_ udpv4_ unix_ ep_ epoll_ do_epoll __ep_ \
         do_poll do_sys_poll datagram_ __skb_wait __skb_recv __skb_try_recv move_addr ____sys_ ___sys_ do_sock skb_recv_ \
         __datagram skb_consume_udp reuseport_ lock_sock aa_sk_perm zerocopy_ __zerocopy msg_zerocopy",
        ),
        Class::Socket,
        "net/socket.c, net/core/sock.c, UDP, unix sockets, and waiting for any of them",
    ),
    (
        By::Starts(
            "skb_ __skb_ __kfree_skb kfree_skb consume_skb __consume_stateless pskb_ __pskb ___pskb napi_consume napi_skb \
         __napi_alloc_skb napi_alloc eth_type_trans sk_skb build_skb __build_skb",
        ),
        Class::Skb,
        "net/core/skbuff.c",
    ),
    (
        By::Starts(
            "vfs_ filemap_ generic_file ext4_ xfs_ btrfs_ shmem_ splice_ __splice do_splice pipe_ anon_pipe iter_file_splice \
         direct_splice page_cache_ folio_ __folio filemap touch_atime atime_needs generic_perform simple_write iomap_ \
         blkdev_ blk_ bio_ submit_bio do_sendfile sendfile new_sync_ rw_verify file_ __filemap xas_ xa_ fsnotify \
         __fsnotify sync_file ksys_read do_iter io_uring io_ __io_ read_null read_zero read_iter write_null balance_dirty \
         mark_page_accessed workingset_ mapping_ dnotify kernfs_ seq_ proc_ iov_iter",
        ),
        Class::Filesystem,
        "fs, mm/filemap.c, pipes and splicing, io_uring, and walking a user's vector",
    ),
    (
        By::Names(
            "do_user_addr_fault exc_page_fault asm_exc_page_fault handle_mm_fault __handle_mm_fault do_anonymous_page \
         do_mem_abort do_page_fault lock_vma_under_rcu",
        ),
        Class::Other,
        "page faults are of no class here: they show by their own names",
    ),
];

/// The class of a symbol of the kernel. `drivers`: modules that drive a NIC of this host.
pub(super) fn of_kernel(symbol: &str, module: &str, drivers: &BTreeSet<String>) -> Class {
    if drivers.contains(module) {
        return Class::Driver;
    }
    let name = symbol.split('.').next().unwrap_or(symbol);
    TABLE.iter().find(|(by, ..)| by.fits(name)).map_or(Class::Other, |(_, class, _)| *class)
}

/// What a CPU is in, where a symbol tells: the entry of an interrupt, or the end of one.
pub(super) fn interruption(symbol: &str) -> Option<super::Context> {
    const SOFT: By = By::Names("__do_softirq handle_softirqs run_ksoftirqd");
    const HARD: By = By::Starts(
        "asm_common_interrupt common_interrupt __common_interrupt sysvec_ __sysvec_ asm_sysvec_ handle_irq_event \
         generic_handle_ el1_interrupt el0_interrupt gic_handle_irq handle_riscv_irq do_irq riscv_intc_irq",
    );
    /// Reached from the end of an interrupt, which is over then: another thread runs, or the way back to user mode.
    const OVER: By = By::Names(
        "__schedule schedule preempt_schedule_irq exit_to_user_mode_loop irqentry_exit_to_user_mode irqentry_exit",
    );
    let name = symbol.split('.').next().unwrap_or(symbol);
    if SOFT.fits(name) {
        Some(super::Context::Softirq)
    } else if OVER.fits(name) {
        Some(super::Context::Kernel)
    } else {
        HARD.fits(name).then_some(super::Context::Hardirq)
    }
}

/// The modules that drive this namespace's network devices. A driver that is built in is not among them.
pub(super) fn nic_modules() -> BTreeSet<String> {
    let devices = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let module = fs::canonicalize(device.path().join("device/driver/module")).ok()?;
            Some(module.file_name()?.to_string_lossy().into_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::profile::Context;

    #[test]
    fn symbols_are_of_the_class_of_what_they_do() {
        use Class as C;
        for (class, symbols) in [
            (
                C::Copy,
                "_copy_to_iter _copy_from_iter copyout copyin rep_movs_alternative copy_user_generic_string copy_user_enhanced_fast_string \
                 copy_user_short_string memcpy __memcpy memcpy_orig memmove copy_mc_enhanced_fast_string __arch_copy_to_user __arch_copy_from_user \
                 fallback_scalar_usercopy __asm_copy_to_user __asm_copy_from_user __asm_vector_usercopy raw_copy_to_user skb_copy_datagram_iter \
                 __skb_datagram_iter simple_copy_to_iter csum_and_copy_from_iter_full skb_copy_and_csum_datagram_msg csum_partial_copy_generic \
                 copy_page_to_iter skb_copy_bits _copy_from_user rep_stos_alternative __memcpy.constprop.0",
            ),
            (
                C::Checksum,
                "csum_partial do_csum __skb_checksum ip_fast_csum csum_ipv6_magic skb_checksum_help crc32c_x86",
            ),
            (
                C::Allocation,
                "kmem_cache_alloc_node_noprof kmem_cache_free get_page_from_freelist __alloc_skb skb_free_head clear_page_erms free_unref_page \
                 __slab_free kfree page_pool_put_unrefed_page rmqueue_bulk kmalloc_reserve mod_objcg_state",
            ),
            (
                C::Locking,
                "_raw_spin_lock_bh _raw_spin_unlock_irqrestore native_queued_spin_lock_slowpath mutex_lock lock_sock_nested release_sock \
                 rwsem_down_read_slowpath futex_wake __rcu_read_unlock",
            ),
            (
                C::Softirq,
                "handle_softirqs __do_softirq net_rx_action process_backlog __napi_poll __local_bh_enable_ip",
            ),
            (
                C::Driver,
                "veth_xmit virtnet_poll loopback_xmit dev_hard_start_xmit __dev_queue_xmit napi_gro_receive",
            ),
            (
                C::Scheduler,
                "schedule __schedule try_to_wake_up pick_eevdf finish_task_switch.isra.0 __wake_up_sync_key hrtimer_start_range_ns ktime_get",
            ),
            (
                C::Syscall,
                "entry_SYSCALL_64 do_syscall_64 __x64_sys_sendto el0_svc invoke_syscall do_trap_ecall_u __fget_light",
            ),
            (C::Tcp, "tcp_sendmsg_locked tcp_v4_rcv __tcp_transmit_skb bbr_main cubictcp_cong_avoid"),
            (
                C::Ip,
                "ip_queue_xmit __ip_local_out ip6_xmit nf_hook_slow fib_table_lookup neigh_resolve_output __netif_receive_skb_core",
            ),
            (
                C::Socket,
                "sock_sendmsg inet_recvmsg udp_sendmsg ep_poll_callback sk_wait_data __sk_mem_raise_allocated unix_stream_recvmsg",
            ),
            (C::Skb, "skb_release_data __kfree_skb consume_skb pskb_expand_head skb_segment"),
            (
                C::Filesystem,
                "vfs_read filemap_read shmem_file_read_iter pipe_write splice_to_pipe xas_load touch_atime iov_iter_advance",
            ),
            (
                C::Interrupt,
                "asm_common_interrupt handle_irq_event sysvec_apic_timer_interrupt gic_handle_irq",
            ),
            (
                C::Idle,
                "default_idle pv_native_safe_halt pvm_safe_halt mwait_idle intel_idle acpi_idle_enter cpu_do_idle arch_cpu_idle do_idle",
            ),
            (C::Other, "exc_page_fault some_new_thing"),
        ] {
            for symbol in symbols.split_whitespace() {
                assert_eq!(of_kernel(symbol, "[kernel]", &BTreeSet::new()), class, "{symbol}");
            }
        }
    }

    #[test]
    fn a_module_that_drives_a_nic_is_the_driver_whatever_its_symbols_are_called() {
        let drivers = BTreeSet::from(["r8169".to_owned()]);
        assert_eq!(of_kernel("tcp_like_name", "r8169", &drivers), Class::Driver);
        assert_eq!(of_kernel("tcp_like_name", "tcp_bbr", &drivers), Class::Tcp);
    }

    #[test]
    fn every_line_of_the_table_has_a_reason_and_every_class_a_name_of_its_own() {
        assert!(TABLE.iter().all(|(.., reason)| reason.len() > 10));
        for class in [Class::Copy, Class::Softirq, Class::Filesystem, Class::Other] {
            assert_eq!(serde_json::to_string(&class).expect("json"), format!("\"{class}\""));
        }
    }

    #[test]
    fn soft_and_hard_interrupts_are_told_by_their_entries() {
        for (symbol, context) in [
            ("handle_softirqs", Some(Context::Softirq)),
            ("__do_softirq", Some(Context::Softirq)),
            ("__sysvec_apic_timer_interrupt", Some(Context::Hardirq)),
            ("el1_interrupt", Some(Context::Hardirq)),
            ("__schedule", Some(Context::Kernel)),
            ("tcp_sendmsg", None),
        ] {
            assert_eq!(interruption(symbol), context, "{symbol}");
        }
    }
}
