"""The address plan and the names."""

import ipaddress
import unittest

from context import errors, plan

TestbedError = errors.TestbedError


class AddressPlan(unittest.TestCase):
    def setUp(self):
        self.plan = plan.Plan.of("mainstay", "10.200.0.0/16")

    def test_parts_lie_in_the_range_and_apart(self):
        parts = [self.plan.machines, self.plan.pods, self.plan.services]
        networks = [ipaddress.ip_network(part) for part in parts]
        for network in networks:
            self.assertTrue(network.subnet_of(ipaddress.ip_network(self.plan.range)))
        for one in networks:
            for other in networks:
                self.assertEqual(one.overlaps(other), one is other)

    def test_every_node_has_an_address_and_pods(self):
        addresses = {self.plan.node_address(n) for n in range(1, plan.MAX_NODES + 1)}
        self.assertEqual(len(addresses), plan.MAX_NODES)
        self.assertNotIn(self.plan.host, addresses)
        self.assertNotIn(self.plan.control, addresses)
        for number in range(1, plan.MAX_NODES + 1):
            self.assertIn(ipaddress.ip_address(self.plan.node_address(number)), ipaddress.ip_network(self.plan.machines))
            self.assertTrue(ipaddress.ip_network(self.plan.node_pods(number)).subnet_of(ipaddress.ip_network(self.plan.pods)))

    def test_service_addresses_are_services(self):
        for address in (self.plan.api_service, self.plan.dns_service):
            self.assertIn(ipaddress.ip_address(address), ipaddress.ip_network(self.plan.services))

    def test_link_names_fit_and_differ(self):
        other = plan.Plan.of("second", "10.201.0.0/16")
        names = [link for p in (self.plan, other) for link in
                 (p.bridge, p.control_link, *(p.node_link(n) for n in range(1, plan.MAX_NODES + 1)))]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(max(map(len, names)), 15)

    def test_ranges_that_are_none(self):
        for cidr in ("10.200.0.0/24", "8.8.0.0/16", "fd00::/16", "10.200.1.0/16", "nonsense"):
            with self.subTest(cidr), self.assertRaises(TestbedError):
                plan.Plan.of("mainstay", cidr)


class DerivedRange(unittest.TestCase):
    def test_the_default_testbed_has_the_default_range(self):
        self.assertEqual(plan.derived_range("mainstay", set()), plan.DEFAULT_RANGE)

    def test_another_name_keeps_its_range_and_avoids_those_taken(self):
        first = plan.derived_range("second", set())
        self.assertEqual(first, plan.derived_range("second", set()))
        self.assertNotEqual(first, plan.DEFAULT_RANGE)
        self.assertNotEqual(first, plan.derived_range("second", {first}))

    def test_none_is_left(self):
        taken = {f"10.{second}.0.0/16" for second in range(256)}
        with self.assertRaises(TestbedError):
            plan.derived_range("second", taken)


class Names(unittest.TestCase):
    def test_names(self):
        for name in ("mainstay", "a", "ci-7", "a" * 20):
            self.assertEqual(plan.check_name(name), name)
        for name in ("", "7up", "Upper", "a" * 21, "end-", "a_b", "../x"):
            with self.subTest(name), self.assertRaises(TestbedError):
                plan.check_name(name)

    def test_node_numbers(self):
        self.assertEqual(plan.node_number("node-2", 3), 2)
        self.assertEqual(plan.node_number("2", 3), 2)
        for node in ("node-4", "0", "node-", "n2", "control"):
            with self.subTest(node), self.assertRaises(TestbedError):
                plan.node_number(node, 3)

    def test_zones_are_used_in_turn(self):
        self.assertEqual([plan.zone(n) for n in range(1, 6)], ["zone-1", "zone-2", "zone-3", "zone-1", "zone-2"])

    def test_node_counts(self):
        self.assertEqual(plan.check_nodes(5), 5)
        for count in (0, 6, -1):
            with self.assertRaises(TestbedError):
                plan.check_nodes(count)


if __name__ == "__main__":
    unittest.main()
