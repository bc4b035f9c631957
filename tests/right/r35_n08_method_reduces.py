class Optim:
    def square_of(self, p):
        return self.reducer.whole_square(p)

    def clip(self, max_norm, ep_group):
        dense, experts = 0.0, 0.0
        for p in self.params:
            if p.is_expert:
                experts += self.square_of(p)
            else:
                dense += self.square_of(p)
        norm = (dense + experts) ** 0.5
        for p in self.params:
            p.grad.mul_(min(1.0, max_norm / norm))
